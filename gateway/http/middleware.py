"""Limits how many requests are worked on at the same time, and how many bodies may be on their way."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway import metrics
from gateway.errors import Refused, unavailable
from icestream.http.room import Room

_OPERATIONS = ("/healthz", "/readyz", "/metrics")
_BODIES = 4
"""Bodies that may be on their way, for each request that may be worked on."""


class LimitRequests:
    """Middleware that refuses with 503 where `running` requests that bring profiles are worked on already.

    A request counts from when its body has come: those that are slow to come hold up nobody. Where too many bodies are
    on their way, one of them is given up (icestream.http.room).
    """

    def __init__(self, app: ASGIApp, running: int) -> None:
        self._app = app
        self.free = running
        self.bodies = Room(_BODIES * running)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _OPERATIONS:
            await self._app(scope, receive, send)
            return
        request = _Request(self, receive, (scope.get("client") or ("",))[0])
        try:
            await self._app(scope, request.receive, send)
        finally:
            request.end()


class _Request:
    """What is received of one request. Raises Refused where it shall not go on."""

    def __init__(self, limits: LimitRequests, receive: Receive, peer: str) -> None:
        self._limits = limits
        self._receive = receive
        self._peer = peer
        self._is_running = self._is_given_up = False
        self._waiting: asyncio.Timeout | None = None

    async def receive(self) -> Message:
        if self._is_running:
            return await self._receive()
        self._limits.bodies.enter(self, self._peer, self._give_up)
        try:
            async with asyncio.timeout(0 if self._is_given_up else None) as self._waiting:
                message = await self._receive()
        except TimeoutError:
            raise _busy("bodies on their way") from None
        finally:
            self._waiting = None
        if message["type"] == "http.request" and not message.get("more_body"):
            self._limits.bodies.exit(self)
            if self._limits.free <= 0:
                raise _busy("requests")
            self._is_running = True
            self._limits.free -= 1
            metrics.RUNNING.inc()
        return message

    def end(self) -> None:
        self._limits.bodies.exit(self)
        if self._is_running:
            self._limits.free += 1
            metrics.RUNNING.dec()

    def _give_up(self) -> None:
        self._is_given_up = True
        if self._waiting is not None:
            self._waiting.reschedule(0)


def _busy(what: str) -> Refused:
    return unavailable(f"too many {what} at the same time", "busy", retry_after_s=1)
