"""Limits how many requests are worked on at the same time."""

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway import metrics
from gateway.errors import unavailable
from gateway.http.error_handlers import error_response

_OPERATIONS = ("/healthz", "/readyz", "/metrics")


class LimitRequests:
    """Middleware that answers 503 where `running` requests that bring profiles are worked on already."""

    def __init__(self, app: ASGIApp, running: int) -> None:
        self._app = app
        self._free = running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _OPERATIONS:
            await self._app(scope, receive, send)
        elif self._free <= 0:
            error = unavailable("too many requests at the same time", "busy", retry_after_s=1)
            await error_response(scope["path"], error)(scope, receive, send)
        else:
            self._free -= 1
            metrics.RUNNING.inc()
            try:
                await self._app(scope, receive, send)
            finally:
                self._free += 1
                metrics.RUNNING.dec()
