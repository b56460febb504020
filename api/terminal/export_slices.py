"""Asks the API for samples, up to a minute at a time: as many as one batch may hold."""

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from api.terminal.client import AnswerError, Client
from icestream.cli import CommandError
from icestream.times import format_unix_nano

_LONGEST_MS = 60_000
_TOO_LARGE = 422
_AGAIN = (0, 429, 502, 503, 504)
_TRIES = 60
_AGAIN_S = 2.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Slice:
    """What one profile type has in [start, end), Unix milliseconds."""

    end_ms: int
    data: bytes


class Slices:
    """Reads one profile type, forwards in time."""

    def __init__(
        self, client: Client, selector: str, profile_type: str, most_bytes: int, stop: threading.Event
    ) -> None:
        self._client = client
        self._parameters = {"selector": selector, "profile_type": profile_type}
        self._most_bytes = most_bytes
        self._stop = stop
        self._length_ms = _LONGEST_MS

    def read(self, start_ms: int, end_ms: int) -> Iterator[Slice]:
        """Yields what there is, in order; ends early when told to stop. Raises CommandError."""
        while start_ms < end_ms and not self._stop.is_set():
            # Up to round times: a second export of the same time then sends the same batches.
            until = min(end_ms, (start_ms // self._length_ms + 1) * self._length_ms)
            data = self._ask(start_ms, until)
            if data == b"":
                return
            if data is None or (len(data) > self._most_bytes and until - start_ms > 1):
                self._halve(until - start_ms, start_ms)
                continue
            yield Slice(until, data)
            start_ms = until
            if len(data) < self._most_bytes // 4:
                self._length_ms = min(self._length_ms * 2, _LONGEST_MS)

    def _halve(self, length_ms: int, start_ms: int) -> None:
        if length_ms <= 1:
            moment = format_unix_nano(start_ms * 10**6)
            raise CommandError(f"{moment} has more samples than one answer of the API: select fewer with --selector")
        self._length_ms = max(1, min(self._length_ms, length_ms) // 2)

    def _ask(self, start_ms: int, end_ms: int) -> bytes | None:
        """Returns the answer; None where it would be too large; b"" (which no answer is) when told to stop. Raises
        CommandError."""
        times = {"start": format_unix_nano(start_ms * 10**6), "end": format_unix_nano(end_ms * 10**6)}
        for number in range(_TRIES):
            try:
                return self._client.read("/api/v1/export/otlp", self._parameters | times)
            except AnswerError as error:
                if error.status == _TOO_LARGE:
                    return None
                if error.status not in _AGAIN or number == _TRIES - 1:
                    raise
                if not number:
                    _log.warning("%s; asking again", error)
                if self._stop.wait(_AGAIN_S):
                    break
        return b""
