"""How many queries run at the same time."""

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

from api import metrics
from api.errors import ApiError, response

_MAX_WAIT_S = 10.0


class LimitQueries:
    """Middleware: at most `running` requests under /api/ at once; at most `waiting` wait, others get 503.

    A turn ends when the answer is sent.
    """

    def __init__(self, app: ASGIApp, running: int, waiting: int) -> None:
        self._app = app
        self._turns = asyncio.Semaphore(running)
        self._waiting = 0
        self._max_waiting = waiting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/api/"):
            await self._app(scope, receive, send)
        elif await self._turn():
            metrics.RUNNING.inc()
            try:
                await self._app(scope, receive, send)
            finally:
                metrics.RUNNING.dec()
                self._turns.release()
        else:
            error = ApiError(
                503, "busy", "too many queries at the same time", "ask again in a few seconds", {"Retry-After": "5"}
            )
            await response(error)(scope, receive, send)

    async def _turn(self) -> bool:
        if not self._turns.locked():
            return await self._turns.acquire()  # at once, without letting others in between
        if self._waiting >= self._max_waiting:
            return False
        self._waiting += 1
        metrics.WAITING.inc()
        try:
            await asyncio.wait_for(self._turns.acquire(), _MAX_WAIT_S)
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
            metrics.WAITING.dec()
        return True
