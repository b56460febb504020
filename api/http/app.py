"""The query API as an application."""

from collections.abc import Callable, Sequence
from pathlib import Path

from fastapi import Depends, FastAPI
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from api import metrics
from api.errors import bad_request
from api.http.app_state import ApiState
from api.http.error_handlers import add_error_handlers, error_response
from api.http.error_model import error_responses
from api.http.known_parameters import known_parameters
from api.http.middleware.answer_head import AnswerHead
from api.http.middleware.limit_queries import LimitQueries
from api.http.middleware.secure_answers import SecureAnswers
from api.http.querier import render, service
from api.http.routes import (
    annotations,
    compare_operations,
    completeness,
    diff,
    export_otlp,
    health,
    labels,
    merge,
    operations,
    profile_types,
    sandwich,
    slow_requests,
    sql,
    stacks,
    timeline,
    top,
    trace_cpu,
    trace_lists,
    traces,
)
from api.queries.database import Database
from api.queries.labels.known_series import KnownSeries
from api.queries.read_only_sql import ReadOnlySql
from api.render import pprof
from api.settings import ApiSettings
from api.tree.stack_cache import StackCache
from icestream.clickhouse.client import Clients
from icestream.http.measure_requests import MeasureRequests
from icestream.http.refuse_foreign_hosts import RefuseForeignHosts
from icestream.http.refuse_foreign_pages import RefuseForeignPages
from icestream.version import VERSION

_PAGE = Path(__file__).parents[1] / "page"
_QUERIES = (
    operations,
    compare_operations,
    slow_requests,
    merge,
    diff,
    sandwich,
    export_otlp,
    traces,
    trace_cpu,
    trace_lists,
    top,
    timeline,
    completeness,
    annotations,
    labels,
    profile_types,
    stacks,
    sql,
)
_DESCRIPTION = """Profiles out of ClickHouse: merged, compared, and by request.

Errors are `{"error": {"code", "message", "hint"}}`: 4xx if the caller can do something about it, 503 (with
`Retry-After`) if the caller should ask again."""


def create_app(
    settings: ApiSettings,
    clients: Clients,
    also_ready: Callable[[], str | None] = lambda: None,
    other_parts: Sequence[str] = (),
) -> FastAPI:
    """Answers from the tables that `clients` reach. Reads nothing before the first request.

    `also_ready` tells /readyz why something else that this process does is not ready, or returns None if it is.
    /metrics has the metrics of the other parts in `other_parts` as well (icestream.http.metrics.PARTS).
    """
    app = FastAPI(title="icestream", version=VERSION, docs_url=None, redoc_url=None, description=_DESCRIPTION)
    database = Database(clients, settings)
    stack_cache = StackCache(database, settings.api_cached_nodes)
    series = KnownSeries(database)
    app.state.shared = ApiState(
        settings, database, stack_cache, series, ReadOnlySql(database), also_ready, ("api", *other_parts)
    )
    add_error_handlers(app)
    for routes in _QUERIES:
        app.include_router(
            routes.router, dependencies=[Depends(known_parameters)], responses=error_responses(400, 408, 422, 500, 503)
        )
    app.include_router(health.router)
    app.include_router(service.router)
    app.include_router(render.router)
    app.add_middleware(LimitQueries, running=settings.api_max_concurrent, waiting=settings.api_max_waiting)
    compressed = (*DEFAULT_EXCLUDED_CONTENT_TYPES, pprof.MEDIA_TYPE)
    app.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=4, exclude_content_types=compressed)
    app.add_middleware(
        RefuseForeignHosts, setting="api_allowed_hosts", allowed=settings.api_allowed_hosts, refusal=_foreign_host
    )
    app.add_middleware(RefuseForeignPages, refusal=_foreign_page)
    app.add_middleware(AnswerHead)
    app.add_middleware(MeasureRequests, requests=metrics.REQUESTS, seconds=metrics.SECONDS)
    app.add_middleware(SecureAnswers)
    if (_PAGE / "index.html").exists():
        app.mount("/", StaticFiles(directory=_PAGE, html=True), name="page")
    return app


def _foreign_host(path: str) -> Response:
    hint = "use an address, or add the name to --api-allowed-hosts"
    return error_response(path, bad_request("foreign_host", "the Host header names another machine", hint))


def _foreign_page(path: str) -> Response:
    hint = "send it by a program, or by a page of this address"
    return error_response(path, bad_request("foreign_page", "a page of another site sent this", hint))
