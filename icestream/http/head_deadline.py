"""HTTP/1.1 with a deadline for the head of a request, which uvicorn does not have."""

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from icestream.http.room import Room

HEAD_S = 10.0
"""Within which the head of a request must have come, since its first byte or since the connection was made."""


class HeadDeadline(H11Protocol):
    """A connection, which is closed if a head does not come in time, or if there is no room for those without a
    request. Subclasses say which room they share."""

    room: ClassVar[Room]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._deadline: asyncio.TimerHandle | None = None
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._has_no_request():  # it may stay for `timeout_keep_alive`
            self.room.enter(self, self._peer(), self._close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        if not self._has_no_request():
            self._stop_waiting()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_S, self._close)
            self.room.enter(self, self._peer(), self._close)

    def _stop_waiting(self) -> None:
        self.room.exit(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _has_no_request(self) -> bool:
        return not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete)

    def _peer(self) -> str:
        return self.client[0] if self.client else ""

    def _close(self) -> None:
        self.transport.close()
