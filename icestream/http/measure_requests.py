"""Counts and times requests."""

import time

from prometheus_client import Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class MeasureRequests:
    """Middleware that fills the metrics of requests. Paths without a route count as route "".

    `requests` has the labels route and status, `seconds` has route.
    """

    def __init__(self, app: ASGIApp, requests: Counter, seconds: Histogram) -> None:
        self._app, self._requests, self._seconds = app, requests, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        started = time.perf_counter()

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_noting_status)
        finally:
            route = getattr(scope.get("route"), "path_format", "")
            self._requests.labels(route, str(status)).inc()
            self._seconds.labels(route).observe(time.perf_counter() - started)
