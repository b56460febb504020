"""Asks the API for samples, a minute at a time, or the parts of a minute that one batch may hold.

Minutes and their parts depend on nothing but the samples. So an export of the same time sends the same batches again,
and the receiver may recognise them.
"""

import itertools
from collections.abc import Iterator

from api.terminal.client import AnswerError, Client
from icestream.cli import CommandError
from icestream.times import format_unix_nano

STEP_MS = 60_000
_TOO_LARGE = 422


class Slices:
    """Reads one profile type."""

    def __init__(self, client: Client, selector: str, profile_type: str, most_bytes: int) -> None:
        self._client = client
        self._parameters = {"selector": selector, "profile_type": profile_type}
        self._most_bytes = most_bytes

    def read_minute(self, start_unix_milli: int) -> Iterator[bytes]:
        """Yields the samples of the minute that begins at `start_unix_milli`, in order. Raises CommandError."""
        if start_unix_milli % STEP_MS:
            raise ValueError(f"no minute begins at {start_unix_milli} ms")
        yield from self._read(start_unix_milli, start_unix_milli + STEP_MS)

    def _read(self, start_unix_milli: int, end_unix_milli: int) -> Iterator[bytes]:
        length_ms = end_unix_milli - start_unix_milli
        data = self._ask(start_unix_milli, end_unix_milli)
        if data is not None and (len(data) <= self._most_bytes or length_ms == 1):
            yield data
            return
        if length_ms == 1:
            moment = format_unix_nano(start_unix_milli * 10**6)
            raise CommandError(f"{moment} has more samples than one answer of the API: select fewer with --selector")
        # Halves it as often as the size demands, at once: no query asks in vain for a size in between.
        batches = 2 if data is None else -(-len(data) // self._most_bytes)
        parts = min(1 << (batches - 1).bit_length(), length_ms)
        del data
        edges = (start_unix_milli + length_ms * part // parts for part in range(parts + 1))
        for part_start_unix_milli, part_end_unix_milli in itertools.pairwise(edges):
            yield from self._read(part_start_unix_milli, part_end_unix_milli)

    def _ask(self, start_unix_milli: int, end_unix_milli: int) -> bytes | None:
        """Returns the answer; None where it would be too large. Raises CommandError."""
        times = {"start": format_unix_nano(start_unix_milli * 10**6), "end": format_unix_nano(end_unix_milli * 10**6)}
        try:
            return self._client.read("/api/v1/export/otlp", self._parameters | times)
        except AnswerError as error:
            if error.status == _TOO_LARGE:
                return None
            raise
