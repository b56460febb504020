"""Limits how many queries run at the same time."""

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

from api import metrics
from api.errors import ApiError
from api.http import connect, error_handlers

_MAX_WAIT_S = 10.0
_PYROSCOPE = ("/querier.", "/pyroscope/")
_QUERIES = ("/api/", *_PYROSCOPE)


class LimitQueries:
    """Middleware that runs at most `running` requests for queries at once. At most `waiting` wait; others get 503.

    A request stops counting as running when its answer is sent.
    """

    def __init__(self, app: ASGIApp, running: int, waiting: int) -> None:
        self._app = app
        self._turns = asyncio.Semaphore(running)
        self._waiting = 0
        self._max_waiting = waiting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(_QUERIES):
            await self._app(scope, receive, send)
        elif await self._wait_for_turn():
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
            form = connect if scope["path"].startswith(_PYROSCOPE) else error_handlers
            await form.error_response(error)(scope, receive, send)

    async def _wait_for_turn(self) -> bool:
        """Whether the request may run."""
        if not self._turns.locked():
            return await self._turns.acquire()  # returns at once, before any other request runs
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
