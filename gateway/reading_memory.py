"""How much memory bodies take while they are read, and a limit for all that are read at the same time.

Each message of protobuf and each value of JSON becomes an object, however small it is: 64 MB of empty spans, which are
64 kB in gzip, would take 5 GB. So they are counted before a body is parsed.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator

import numpy as np

from gateway import metrics
from gateway.errors import Refused, unavailable

MAX_ELEMENTS = 2_000_000
"""The most short elements of a body: each takes microseconds to read, and `_ELEMENT_BYTES`."""
_ELEMENT_BYTES = 170
"""Measured: 50 for an attribute, 170 for a span."""
_BYTES_OF_BYTE = 5
"""Measured: 2 for text, up to 9 for packed numbers."""
_SHORT = 24
_PIECE = 1_000_000


def protobuf_elements(data: bytes) -> int:
    """Returns about how many elements shorter than 24 bytes a protobuf message has: strings, and messages at any depth.
    It is a guess, which does not parse: it takes each byte for a tag that could be one. In text, that is rare."""
    found = 0
    for begin in range(0, len(data), _PIECE):
        piece = np.frombuffer(data, np.uint8, min(_PIECE + 1, len(data) - begin), begin)
        tags = piece[:-1] & 0x87 == 2  # length-delimited, of the fields 0 to 15
        found += int(np.count_nonzero(tags & (piece[1:] < _SHORT)))
    return found


def json_elements(data: bytes) -> int:
    """Returns about how many values there are in JSON."""
    return sum(map(data.count, (b",", b"[", b"{")))


def text_elements(data: bytes) -> int:
    """Returns about how many frames there are in folded stacks."""
    return data.count(b";") + data.count(b"\n")


class ReadingMemory:
    """The memory of all bodies that are being read. For any thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def request(self) -> Iterator["Reading"]:
        """When the request ends, its memory is free again."""
        request = Reading(self)
        try:
            yield request
        finally:
            self.change(request, -request.used)

    def change(self, request: "Reading", size: int) -> None:
        """Raises Refused where other requests take too much. A request alone gets as much as it needs."""
        with self._lock:
            others = self._used - request.used
            if size > 0 and others and self._used + size > self._limit:
                raise unavailable("other requests take as much memory as they may", "busy", 1)
            self._used += size
            request.used += size
            metrics.READING_BYTES.set(self._used)


class Reading:
    """What one request takes."""

    def __init__(self, memory: ReadingMemory) -> None:
        self.used = 0
        self._memory = memory

    def before_reading(self, data: bytes, elements: Callable[[bytes], int] = protobuf_elements) -> bytes:
        """Returns the data. Raises Refused where it has too many elements, or where others take too much memory."""
        count = elements(data)
        if count > MAX_ELEMENTS:
            hint = "send smaller requests, or more often"
            raise Refused(413, "too_large", f"expected at most {MAX_ELEMENTS} elements, got about {count}", hint)
        self._memory.change(self, _BYTES_OF_BYTE * len(data) + _ELEMENT_BYTES * count)
        return data
