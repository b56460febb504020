"""The gateway as an application."""

from fastapi import FastAPI
from starlette.responses import Response

from gateway import metrics
from gateway.errors import foreign_host, foreign_page
from gateway.http.app_state import GatewayState
from gateway.http.error_handlers import add_error_handlers, error_response
from gateway.http.middleware import LimitRequests
from gateway.http.routes import health, otlp_profiles, otlp_traces, pprof, pyroscope_ingest, pyroscope_push
from gateway.intake import Intake
from gateway.publisher import BatchPublisher
from gateway.settings import GatewaySettings
from icestream.http.measure_requests import MeasureRequests
from icestream.http.refuse_foreign_hosts import RefuseForeignHosts
from icestream.http.refuse_foreign_pages import RefuseForeignPages
from icestream.version import VERSION

_ROUTES = (pprof, otlp_profiles, otlp_traces, pyroscope_push, pyroscope_ingest)


def create_app(settings: GatewaySettings, publisher: BatchPublisher, intake: Intake | None = None) -> FastAPI:
    """`publisher` publishes what the gateway takes in. `intake`: by default one of its own."""
    app = FastAPI(title="icestream gateway", version=VERSION, docs_url=None, redoc_url=None)
    app.state.shared = GatewayState(settings, publisher, intake or Intake(settings, publisher))
    add_error_handlers(app)
    for routes in _ROUTES:
        app.include_router(routes.router)
    app.include_router(health.router)
    app.add_middleware(LimitRequests, running=settings.gateway_max_requests)
    hosts = settings.gateway_allowed_hosts
    app.add_middleware(RefuseForeignHosts, setting="gateway_allowed_hosts", allowed=hosts, refusal=_foreign_host)
    app.add_middleware(RefuseForeignPages, refusal=lambda path: error_response(path, foreign_page()))
    app.add_middleware(MeasureRequests, requests=metrics.REQUESTS, seconds=metrics.SECONDS)
    return app


def _foreign_host(path: str) -> Response:
    return error_response(path, foreign_host())
