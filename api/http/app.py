"""The query API as an application."""

from collections.abc import Callable
from pathlib import Path

from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles

from api.http.app_state import Context
from api.http.error_handlers import add_handlers
from api.http.middleware.answer_head import AnswerHead
from api.http.middleware.limit_queries import LimitQueries
from api.http.middleware.measure_requests import Measure
from api.http.routes import diff, health, labels, merge, timeline, top, traces
from api.queries.database import Database
from api.settings import ApiSettings
from api.tree.stack_cache import Stacks
from icestream import __version__
from icestream.clickhouse import Clients

_PAGE = Path(__file__).parents[1] / "page"
_ROUTERS = tuple(part.router for part in (merge, diff, traces, top, timeline, labels, health))


def create_app(settings: ApiSettings, clients: Clients, also_ready: Callable[[], str | None] = lambda: None) -> FastAPI:
    """Answers from the tables that `clients` reach; nothing is read before the first request.

    `also_ready` tells /readyz why what else this process does cannot be done, or None.
    """
    app = FastAPI(title="icestream", version=__version__, docs_url=None, redoc_url=None, description=_DESCRIPTION)
    database = Database(clients, settings)
    app.state.context = Context(settings, database, Stacks(database, settings.api_cached_nodes), also_ready)
    add_handlers(app)
    for router in _ROUTERS:
        app.include_router(router)
    app.add_middleware(LimitQueries, running=settings.api_max_concurrent, waiting=settings.api_max_waiting)
    app.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=4)
    app.add_middleware(AnswerHead)
    app.add_middleware(Measure)
    if (_PAGE / "index.html").exists():
        app.mount("/", StaticFiles(directory=_PAGE, html=True), name="page")
    return app


_DESCRIPTION = """Profiles out of ClickHouse: merged, compared, and per request.

Errors are `{"error": {"code", "message", "hint"}}`: 4xx where the caller can do something about it, 503 (with
`Retry-After`) where it is worth asking again."""
