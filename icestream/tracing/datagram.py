"""Packs activity into datagrams (specification: schemas/activity-datagram.md)."""

import struct
from array import array
from collections.abc import Iterator, Sequence
from operator import sub
from typing import NamedTuple, TypeVar

from icestream.tracing.threads import Context, SpanEnd

_T = TypeVar("_T")

MAGIC = b"ICEA"
VERSION = 2
MOST_INTERVALS = 1024  # in a datagram
MOST_SPANS = 128
MOST_NAME_BYTES = 256
MOST_BYTES = 128 << 10
"""A datagram is smaller."""
UNKNOWN = 2**32 - 1
"""In place of the row of an operation."""
HEADER = struct.Struct("<4sHHIIIIIIIIQ")


class IntervalColumns(NamedTuple):
    """Columns of intervals: each has one value for each interval. All times are nanoseconds."""

    context: list[Context]
    start: list[int]  # CLOCK_MONOTONIC
    start_cpu: list[int]  # the thread's CPU clock
    end: list[int]
    end_cpu: list[int]
    tid: list[int]

    def rows(self, first: int, end: int) -> "IntervalColumns":
        """Returns the rows from `first` to before `end`."""
        return IntervalColumns(
            self.context[first:end],
            self.start[first:end],
            self.start_cpu[first:end],
            self.end[first:end],
            self.end_cpu[first:end],
            self.tid[first:end],
        )


class Datagram(NamedTuple):
    content: bytes
    intervals: int
    spans: int
    dropped: int  # dropped intervals that it reports


def datagrams(
    service: bytes, pid: int, columns: IntervalColumns, spans: Sequence[SpanEnd], dropped: int
) -> Iterator[Datagram]:
    """Yields as many datagrams as needed, at least one; the first one reports the dropped intervals."""
    count = max(1, -(-len(columns.tid) // MOST_INTERVALS), -(-len(spans) // MOST_SPANS))
    for number in range(count):
        at, span_at = number * MOST_INTERVALS, number * MOST_SPANS
        part, own_spans = columns.rows(at, at + MOST_INTERVALS), spans[span_at : span_at + MOST_SPANS]
        yield from _fitting(service, pid, part, own_spans, dropped if number == 0 else 0)


def _fitting(
    service: bytes, pid: int, columns: IntervalColumns, spans: Sequence[SpanEnd], dropped: int
) -> Iterator[Datagram]:
    """Yields one datagram, or several where names are long."""
    content = _pack(service, pid, columns, spans, dropped)
    rows = max(len(columns.tid), len(spans))
    if len(content) < MOST_BYTES or rows <= 1:
        yield Datagram(content, len(columns.tid), len(spans), dropped)
        return
    middle = rows // 2
    yield from _fitting(service, pid, columns.rows(0, middle), spans[:middle], dropped)
    yield from _fitting(service, pid, columns.rows(middle, rows), spans[middle:], 0)


def _pack(service: bytes, pid: int, columns: IntervalColumns, spans: Sequence[SpanEnd], dropped: int) -> bytes:
    rows = _rows(columns.context)
    entries, operations = zip(*map(_request, rows), strict=True) if rows else ((), ())
    records, parents, names, starts, ends, flags = zip(*spans, strict=True) if spans else ((),) * 6
    name_rows = _rows([*names, *filter(None, operations)])
    texts = [name.encode("utf-8", "replace")[:MOST_NAME_BYTES] for name in name_rows]
    parts = (
        HEADER.pack(
            MAGIC, VERSION, 0, pid, len(rows), len(columns.tid), len(spans), len(texts),
            len(service), sum(map(len, texts)), 0, dropped,
        ),
        array("q", columns.start),
        array("q", map(sub, columns.end, columns.start)),
        array("q", map(sub, columns.end_cpu, columns.start_cpu)),
        array("q", starts),
        array("q", ends),
        array("I", columns.tid),
        array("I", map(rows.__getitem__, columns.context)),
        array("I", map(name_rows.__getitem__, names)),
        array("I", [name_rows.get(operation, UNKNOWN) for operation in operations]),
        array("I", flags),
        array("I", map(len, texts)),
        b"".join(context.record[:16] for context in rows),
        b"".join(context.record[16:24] for context in rows),
        b"".join(entries),
        b"".join(record[:16] for record in records),
        b"".join(record[16:24] for record in records),
        b"".join(parent or bytes(8) for parent in parents),
        service,
        b"".join(texts),
    )  # fmt: skip
    return b"".join(parts)


def _request(context: Context) -> tuple[bytes, str]:
    """Returns the ID of the entry span and the operation of a context; zeros and "" if they are not known."""
    if operation := context.operation:
        return context.entry_span_id, operation
    return bytes(8), ""


def _rows(values: Sequence[_T]) -> dict[_T, int]:
    """Returns the row of each distinct value, in the order of first occurrence."""
    return {value: row for row, value in enumerate(dict.fromkeys(values))}
