"""Limits how many queries run at the same time."""

import asyncio
from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import metrics
from api.errors import ApiError
from api.http.error_handlers import PYROSCOPE, error_response
from icestream.http.room import Room

_MAX_WAIT_S = 10.0
_BODY_S = 10.0
_MAX_BODY = 2 * 2**20
"""Bytes of a body that are read before it is the request's turn: no route takes more."""
_MAX_BODIES = 64 * 2**20
"""Bytes of all bodies that are still to come completely."""
_MOST_COMING = 256
"""Bodies that may be on their way; if there are more, one of them is given up (icestream.http.room)."""
_STALL_S = 1.0
"""A client that takes nothing for this long stalls."""
_MAX_STALL_S = 120.0
_CLOSE = {"Connection": "close"}
_QUERIES = ("/api/", *PYROSCOPE)


class LimitQueries:
    """Middleware that runs at most `running` requests for queries at once. At most `waiting` wait; others get 503.

    A request counts as running from when its body was read, in `_BODY_S` at most, until its answer is sent, but not
    while its client stalls. Stalled clients hold no turn; they are dropped after `_MAX_STALL_S`, or sooner if `waiting`
    others stall.
    """

    def __init__(self, app: ASGIApp, running: int, waiting: int) -> None:
        self._app = app
        self.turns = asyncio.Semaphore(running)
        self._waiting = 0
        self._max_waiting = waiting
        self._stalled = 0
        self._body_bytes = 0
        self._coming = Room(_MOST_COMING)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(_QUERIES):
            await self._app(scope, receive, send)
            return
        timeout = asyncio.timeout(_BODY_S)
        try:
            async with timeout:
                self._coming.enter(timeout, (scope.get("client") or ("",))[0], lambda: timeout.reschedule(0))
                body = await self._read_body(receive)
        except TimeoutError:
            message = f"the body did not come within {_BODY_S:.0f} s, or sooner, as many others wait for theirs"
            error = ApiError(408, "too_slow", message, "", _CLOSE)
            await error_response(scope["path"], error)(scope, receive, send)
            return
        finally:
            self._coming.exit(timeout)
        if body and body[-1]["type"] == "http.disconnect":
            return
        if body and await self._wait_for_turn():
            turn = _Turn(self, send)
            try:
                await self._app(scope, _replayed(body, receive), turn.send)
            except _GivenUp:
                pass  # the server closes the connection of an answer that is not complete
            finally:
                turn.end()
        else:
            error = ApiError(
                503, "busy", "too many queries at the same time", "ask again in a few seconds", {"Retry-After": "5"}
            )
            await error_response(scope["path"], error)(scope, receive, send)

    async def _read_body(self, receive: Receive) -> list[Message]:
        """Returns messages with the whole body, or with more of it than any route takes; none if too many are read."""
        messages, size = [await receive()], 0
        try:
            while messages[-1]["type"] == "http.request" and messages[-1].get("more_body"):
                piece = len(messages[-1].get("body", b""))
                size += piece
                self._body_bytes += piece
                if self._body_bytes > _MAX_BODIES:
                    return []
                if size > _MAX_BODY:
                    break
                messages.append(await receive())
        finally:
            self._body_bytes -= size
        return messages

    async def _wait_for_turn(self) -> bool:
        """Whether the request may run."""
        if not self.turns.locked():
            return await self.turns.acquire()  # returns at once, before any other request runs
        if self._waiting >= self._max_waiting:
            return False
        self._waiting += 1
        metrics.WAITING.inc()
        try:
            await asyncio.wait_for(self.turns.acquire(), _MAX_WAIT_S)
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
            metrics.WAITING.dec()
        return True

    async def outlast(self, turn: "_Turn", sending: asyncio.Future[None]) -> bool:
        """Gives the turn to others until the client takes what is sent; returns whether it does so in time."""
        turn.end()
        if self._stalled >= self._max_waiting:
            return False
        self._stalled += 1
        try:
            done, _ = await asyncio.wait([sending], timeout=_MAX_STALL_S)
        finally:
            self._stalled -= 1
        return bool(done)


class _GivenUp(Exception):
    """The client takes nothing of the answer."""


class _Turn:
    """The turn of one request, which it has at first."""

    def __init__(self, queries: LimitQueries, send: Send) -> None:
        self._queries = queries
        self._send = send
        self._is_running = True
        metrics.RUNNING.inc()

    async def send(self, message: Message) -> None:
        """Sends a part of the answer. Raises _GivenUp."""
        sending = asyncio.ensure_future(self._send(message))
        try:
            done, _ = await asyncio.wait([sending], timeout=_STALL_S)
            if not done and not await self._queries.outlast(self, sending):
                raise _GivenUp
            await sending
        finally:
            sending.cancel()
        if not self._is_running and message.get("more_body"):
            await self._queries.turns.acquire()
            self._is_running = True
            metrics.RUNNING.inc()

    def end(self) -> None:
        """Lets another request run."""
        if self._is_running:
            self._is_running = False
            metrics.RUNNING.dec()
            self._queries.turns.release()


def _replayed(messages: Sequence[Message], receive: Receive) -> Receive:
    """Returns a `receive` that begins with these messages."""
    waiting = iter(messages)

    async def receive_next() -> Message:
        message = next(waiting, None)
        return await receive() if message is None else message

    return receive_next
