"""How much memory bodies take while they are read, and a limit for all that are read at the same time.

Each message of protobuf and each value of JSON becomes an object, however small it is: 64 MB of empty spans, which are
64 kB in gzip, would take 5 GB. So they are counted before a body is parsed.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator

import numpy as np

from gateway import metrics
from gateway.errors import too_many, unavailable

MAX_ELEMENTS = 8_000_000
"""The most short elements of a request: each takes microseconds to read, and `ELEMENT_BYTES`. Profiles of 64 MiB have
six to eight million."""
ELEMENT_BYTES = 170
"""Measured: 50 for an attribute, 170 for a span."""
PROFILE_ELEMENT_BYTES = 120
"""An element of OTLP profiles. Measured: 40 for a sample, a location or a resource, 112 for a profile."""
_BYTES_OF_BYTE = 5
"""Measured: 2 for text, up to 9 for packed numbers."""
_SHORT = 24
_PIECE = 1_000_000


def protobuf_elements(data: bytes) -> int:
    """Returns about how many elements shorter than 24 bytes a protobuf message has: strings, and messages at any depth.

    It is a guess, which does not parse: it takes each byte for a tag that could be one, and a number behind it for a
    short length if its lowest bits are, as numbers may have more bytes than they need. In text, both are rare.
    """
    found = 0
    for begin in range(0, len(data), _PIECE):
        piece = np.frombuffer(data, np.uint8, min(_PIECE + 1, len(data) - begin), begin)
        delimited = piece[:-1] & 7 == 2
        found += int(np.count_nonzero(delimited & (piece[1:] & 0x7F < _SHORT)))
    return found


def json_elements(data: bytes) -> int:
    """Returns about how many values there are in JSON."""
    return sum(map(data.count, (b",", b"[", b"{")))


def text_elements(data: bytes) -> int:
    """Returns about how many elements folded stacks take: a line as much as five."""
    return data.count(b";") + 5 * data.count(b"\n")


class ReadingMemory:
    """The memory of all requests that are being read. For any thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        """Bytes, as estimated."""
        return self._used

    @contextlib.contextmanager
    def request(self) -> Iterator["Reading"]:
        """When the request ends, its memory is free again."""
        reading = Reading(self)
        try:
            yield reading
        finally:
            self.end(reading)

    def reserve(self, reading: "Reading", size: int) -> None:
        """Raises Refused where other requests take too much, or this one would take more than all may."""
        with self._lock:
            if reading.used + size > self._limit:
                raise too_many(self._limit, f"bytes of memory, as estimated, got {reading.used + size}")
            if reading.has_ended or self._used + size > self._limit:
                raise unavailable("other requests take as much memory as they may", "busy", 1)
            self._add(reading, size)

    def end(self, reading: "Reading") -> None:
        """Frees what a request has taken. A thread that still reads it takes no more."""
        with self._lock:
            reading.has_ended = True
            self._add(reading, -reading.used)

    def _add(self, reading: "Reading", size: int) -> None:
        self._used += size
        reading.used += size
        metrics.READING_BYTES.set(self._used)


class Reading:
    """What one request takes."""

    def __init__(self, memory: ReadingMemory) -> None:
        self.used = 0
        self.has_ended = False
        self._memory = memory
        self._elements = 0

    def hold(self, size: int) -> None:
        """Counts bytes that the request keeps. Raises Refused where others take too much memory."""
        self._memory.reserve(self, size)

    def before_reading(
        self,
        data: bytes,
        elements: Callable[[bytes], int] = protobuf_elements,
        element_bytes: int = ELEMENT_BYTES,
    ) -> bytes:
        """Returns the data. Raises Refused where the request has too many elements, or others take too much memory."""
        count = elements(data)
        self._elements += count
        if self._elements > MAX_ELEMENTS:
            raise too_many(MAX_ELEMENTS, f"elements, got about {self._elements}")
        self.hold(_BYTES_OF_BYTE * len(data) + element_bytes * count)
        return data
