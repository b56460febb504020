"""Reads the datagrams that applications send (specification: schemas/activity-datagram.md)."""

import struct
from dataclasses import dataclass

import numpy as np

from icestream.times import HOUR_NS

MAGIC = b"ICEA"
VERSIONS = (1, 2)
MOST_BYTES = 128 << 10
MOST_NAME_BYTES = 256
OLDEST_NS = HOUR_NS
"""Intervals and spans that started longer ago than this are refused. So none is longer."""

MOST_DROPPED = 2**32 - 1
"""Limit for one datagram, so that sums stay 64-bit numbers."""

_UNKNOWN = 2**32 - 1
_ENTRY, _ERROR = 1, 2  # flags of spans
_AHEAD_NS = 10**6
_CPU_SLACK_NS = 10**6
_HEADER = struct.Struct("<4sHHIIIIIIIIQ")
_U8, _U4 = np.dtype("<u8"), np.dtype("<u4")


class MalformedDatagram(ValueError):
    """Not a datagram of the specification."""


@dataclass(frozen=True)
class ActivityDatagram:
    """The plausible rows of a datagram: n intervals, c contexts, s spans."""

    pid: int  # the process ID that the sender sees itself
    service: str
    start_monotonic_ns: np.ndarray  # uint64 (n,)
    duration_ns: np.ndarray  # uint64 (n,)
    thread_cpu_ns: np.ndarray  # uint64 (n,)
    tid: np.ndarray  # uint32 (n,), as the sender sees it
    context: np.ndarray  # uint32 (n,), row of the contexts
    contexts: np.ndarray  # uint8 (c, 24): trace ID and span ID
    entry_span_ids: np.ndarray  # uint8 (c, 8); zeros: not known
    operations: list[str]  # c; "": not known
    span_start_monotonic_ns: np.ndarray  # uint64 (s,)
    span_end_monotonic_ns: np.ndarray  # uint64 (s,)
    span_ids: np.ndarray  # uint8 (s, 32): trace ID, span ID, parent's span ID
    span_names: list[str]  # s
    span_is_entry: np.ndarray  # bool (s,)
    span_has_error: np.ndarray  # bool (s,)
    dropped: int  # intervals that the sender has dropped
    refused: int  # intervals and spans that are not plausible


def decode(content: bytes, now_monotonic_ns: int) -> ActivityDatagram:
    """Reads a datagram that came at `now_monotonic_ns` (CLOCK_MONOTONIC). Raises MalformedDatagram."""
    if len(content) < _HEADER.size:
        raise MalformedDatagram(f"{len(content)} bytes are no header")
    magic, version, flags, pid, c, n, s, k, service_bytes, name_bytes, _, dropped = _HEADER.unpack_from(content)
    if magic != MAGIC or version not in VERSIONS or flags:
        raise MalformedDatagram(f"expected {MAGIC!r} version {VERSIONS}, got {magic!r} version {version}")
    has_operations = version >= 2
    size = _HEADER.size + n * 32 + s * 52 + k * 4 + c * 24 + service_bytes + name_bytes
    size += (s * 4 + c * 12) if has_operations else 0
    if size != len(content) or service_bytes > MOST_NAME_BYTES:
        raise MalformedDatagram(f"the header promises {size} bytes, there are {len(content)}")
    reader = _Reader(content, _HEADER.size)
    start, duration, cpu, span_start, span_end = (reader.column(_U8, rows) for rows in (n, n, n, s, s))
    tid, context, span_name = (reader.column(_U4, rows) for rows in (n, n, s))
    operation = reader.column(_U4, c) if has_operations else np.full(c, _UNKNOWN)
    span_flags = reader.column(_U4, s) if has_operations else np.zeros(s, np.uint32)
    name_length = reader.column(_U4, k)
    traces, spans = reader.identifiers(c, 16), reader.identifiers(c, 8)
    entries = reader.identifiers(c, 8) if has_operations else np.zeros((c, 8), np.uint8)
    span_ids = np.hstack([reader.identifiers(s, width) for width in (16, 8, 8)])
    service = reader.text(service_bytes)
    names = _names(reader.bytes(name_bytes), name_length)
    known = operation != _UNKNOWN
    if (n and int(context.max()) >= c) or (s and int(span_name.max()) >= k) or (operation[known] >= k).any():
        raise MalformedDatagram("a row number is out of range")
    true = _possible(start, duration, now_monotonic_ns) & _not_zeros(traces)[context]
    true &= cpu <= duration + duration // 100 + _CPU_SLACK_NS
    true_spans = _not_zeros(span_ids[:, :16]) & _not_zeros(span_ids[:, 16:24])
    true_spans &= (span_end >= span_start) & _possible(span_start, span_end - span_start, now_monotonic_ns)
    return ActivityDatagram(
        pid=pid,
        service=service,
        start_monotonic_ns=start[true],
        duration_ns=duration[true],
        thread_cpu_ns=cpu[true],
        tid=tid[true],
        context=context[true],
        contexts=np.hstack([traces, spans]),
        entry_span_ids=entries,
        operations=["" if row == _UNKNOWN else names[row] for row in operation.tolist()],
        span_start_monotonic_ns=span_start[true_spans],
        span_end_monotonic_ns=span_end[true_spans],
        span_ids=span_ids[true_spans],
        span_names=[names[row] for row in span_name[true_spans].tolist()],
        span_is_entry=(span_flags[true_spans] & _ENTRY) != 0,
        span_has_error=(span_flags[true_spans] & _ERROR) != 0,
        dropped=min(dropped, MOST_DROPPED),
        refused=n + s - int(true.sum()) - int(true_spans.sum()),
    )


class _Reader:
    """Columns of a datagram, one after the other."""

    def __init__(self, content: bytes, at: int) -> None:
        self._content = content
        self._at = at

    def column(self, dtype: "np.dtype[np.unsignedinteger]", rows: int) -> np.ndarray:
        return np.frombuffer(self.bytes(rows * dtype.itemsize), dtype)

    def identifiers(self, rows: int, width: int) -> np.ndarray:
        return np.frombuffer(self.bytes(rows * width), np.uint8).reshape(rows, width)

    def text(self, size: int) -> str:
        return _text(self.bytes(size))

    def bytes(self, size: int) -> bytes:
        self._at += size
        return self._content[self._at - size : self._at]


def _not_zeros(identifiers: np.ndarray) -> np.ndarray:
    return np.asarray(identifiers.any(axis=1))


def _possible(start: np.ndarray, duration: np.ndarray, now_monotonic_ns: int) -> np.ndarray:
    """Which intervals lie in the past, and not too far back. The numbers are unsigned, so no difference may wrap."""
    latest = np.uint64(now_monotonic_ns + _AHEAD_NS)
    return (start <= latest) & (latest - start <= OLDEST_NS) & (duration <= latest - start)


def _names(text: bytes, lengths: np.ndarray) -> list[str]:
    if int(lengths.sum(dtype=np.uint64)) != len(text) or (len(lengths) and int(lengths.max()) > MOST_NAME_BYTES):
        raise MalformedDatagram("the lengths of the names do not add up")
    ends = lengths.cumsum().tolist()
    return [_text(text[end - length : end]) for end, length in zip(ends, lengths.tolist(), strict=True)]


def _text(content: bytes) -> str:
    """UTF-8 that may be cut within a character, or be no UTF-8; without control characters."""
    text = content.decode("utf-8", "ignore")
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
