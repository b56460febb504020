"""The query API as an application."""

from collections.abc import Callable
from pathlib import Path

from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles

from api.context import Context
from api.database import Database
from api.handlers import add_handlers
from api.head import AnswerHead
from api.limit import LimitQueries
from api.measure import Measure
from api.routes import diff, health, labels, merge, series, top, traces
from api.settings import ApiSettings
from api.stacks import Stacks
from icestream import __version__
from icestream.clickhouse import Clients

_PAGE = Path(__file__).parent / "page"
_ROUTERS = tuple(part.router for part in (merge, diff, traces, top, series, labels, health))


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
