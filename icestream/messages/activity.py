"""icestream.activity: ActivityBatch as columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from icestream.messages import checks
from icestream.messages.checks import BadMessage
from icestream.messages.plausible import ANY_TIME, Times
from icestream.times import MAX_UNIX_NANO
from icestream.v1.activity_pb2 import ActivityBatch, Span
from icestream.v1.common_pb2 import BatchId


class SpanColumns(NamedTuple):
    """The fields of spans, each as a list."""

    trace_id: list[bytes]
    span_id: list[bytes]
    parent_span_id: list[bytes]  # empty: a root
    name: list[str]
    service: list[str]
    start_unix_nano: list[int]
    end_unix_nano: list[int]
    operation: list[str]  # of entry spans; "": it is none, or that is not known
    status: list[int]  # index into STATUSES


STATUSES = ("", "ok", "error")
"""What the numbers of a status stand for; "": not set."""
_span_fields = attrgetter(*SpanColumns._fields)


@dataclass(frozen=True)
class ActivityColumns:
    """A checked ActivityBatch: n intervals, c contexts. Every index is in range."""

    id: BatchId
    host_id: str
    complete_unix_nano: int
    published_unix_nano: int
    clock_offset_ns: int  # Unix times of the batch minus the host's CLOCK_MONOTONIC
    reference_unix_nano: int  # the message's start_unix_nano, from which the starts of intervals count
    dropped: int
    strings: list[str]
    contexts: np.ndarray  # uint8 (c, 24): trace ID, span ID
    entry_span_ids: np.ndarray  # uint8 (c, 8); zeros: not known
    operation: np.ndarray  # uint32 (c,), index into strings; 0: not known
    start_unix_nano: np.ndarray  # int64 (n,)
    duration_ns: np.ndarray  # uint64 (n,)
    thread_cpu_ns: np.ndarray  # uint64 (n,)
    pid: np.ndarray  # uint32 (n,)
    tid: np.ndarray  # uint32 (n,)
    context: np.ndarray  # uint32 (n,), row of contexts; its trace ID may be zeros: no trace
    service: np.ndarray  # uint32 (n,), index into strings
    spans: SpanColumns

    @property
    def end_unix_nano(self) -> np.ndarray:
        """int64 (n,); an interval covers [start, end)."""
        return self.start_unix_nano + self.duration_ns.astype(np.int64)

    def time_range(self) -> tuple[int, int]:
        """Returns the first and the last moment of intervals, spans and complete_unix_nano, Unix nanoseconds."""
        start = min([self.complete_unix_nano, *self.spans.start_unix_nano])
        end = max([self.complete_unix_nano, *self.spans.end_unix_nano])
        return int(self.start_unix_nano.min(initial=start)), int(self.end_unix_nano.max(initial=end))


def decode_activity(data: bytes | None, times: Times = ANY_TIME) -> ActivityColumns:
    """Raises BadMessage."""
    message = checks.parse(ActivityBatch, data)
    checks.check_batch_id("id", message.id)
    checks.check_id("host_id", message.host_id)
    times.check("start_unix_nano", message.start_unix_nano)
    times.check("complete_unix_nano", message.complete_unix_nano)
    times.check_or_zero("published_unix_nano", message.published_unix_nano)
    checks.check_most("dropped", message.dropped, checks.MAX_COUNT)
    checks.check_clock_offset(message.clock_offset_ns)
    strings = checks.strings(message.strings)
    contexts = checks.contexts(message.context_trace_ids, message.context_span_ids)
    operation = checks.column(message, "context_operation", len(contexts), 0)
    checks.check_index("context_operation", operation, len(strings))
    intervals = _intervals(message, len(contexts), strings, times)
    checks.check_rows_text("context_operation", operation[intervals["context"]], strings)
    spans = _spans(message.spans, times)
    return ActivityColumns(
        id=message.id,
        host_id=message.host_id,
        complete_unix_nano=message.complete_unix_nano,
        published_unix_nano=message.published_unix_nano,
        clock_offset_ns=message.clock_offset_ns,
        reference_unix_nano=message.start_unix_nano,
        dropped=message.dropped,
        strings=strings,
        contexts=contexts,
        entry_span_ids=_entry_span_ids(message.context_entry_span_ids, len(contexts)),
        operation=operation,
        spans=spans,
        **intervals,
    )


def _intervals(message: ActivityBatch, contexts: int, strings: list[str], times: Times) -> dict[str, np.ndarray]:
    names = ("start_offset_ns", "duration_ns", "thread_cpu_ns", "pid", "tid", "context", "service")
    offset, *rest = checks.columns(message, *(f"interval_{name}" for name in names))
    values = dict(zip(names[1:], rest, strict=True))
    checks.check_index("interval_context", values["context"], contexts)
    checks.check_index("interval_service", values["service"], len(strings))
    checks.check_rows_text("interval_service", values["service"], strings)
    checks.check_sum("interval_thread_cpu_ns", values["thread_cpu_ns"])
    # Limits below which the sums that follow do not overflow.
    checks.check_column("interval_start_offset_ns", np.abs(offset.astype(float)), MAX_UNIX_NANO)
    checks.check_column("interval_duration_ns", values["duration_ns"], MAX_UNIX_NANO)
    start = offset + message.start_unix_nano
    times.check_column("interval_start_offset_ns", start)
    times.check_column("interval_duration_ns", start + values["duration_ns"].astype(np.int64))
    return {"start_unix_nano": start, **values}


def _entry_span_ids(data: bytes, contexts: int) -> np.ndarray:
    if len(data) not in (0, 8 * contexts):
        raise BadMessage("context_entry_span_ids", f"expected 8 bytes for each context, got {len(data)}")
    return np.frombuffer(data or bytes(8 * contexts), np.uint8).reshape(contexts, 8)


def _spans(spans: Sequence[Span], times: Times) -> SpanColumns:
    columns = (
        SpanColumns(*map(list, zip(*map(_span_fields, spans), strict=True)))
        if spans
        else SpanColumns(*([] for _ in SpanColumns._fields))
    )
    sizes = set(
        zip(map(len, columns.trace_id), map(len, columns.span_id), map(len, columns.parent_span_id), strict=True)
    )
    if wrong := sizes - {(16, 8, 0), (16, 8, 8)}:
        raise BadMessage("spans", f"expected IDs of 16, 8, and 8 or 0 bytes, got {min(wrong)}")
    for name in set(columns.name):
        checks.check_text("spans.name", name, least=0)
    for operation in set(columns.operation):
        checks.check_text("spans.operation", operation, least=0)
    for service in set(columns.service):
        checks.check_text("spans.service", service, least=0)
    checks.check_most("spans.status", max(columns.status, default=0), len(STATUSES) - 1)
    times.check_column("spans.start_unix_nano", np.array(columns.start_unix_nano, np.uint64))
    times.check_column("spans.end_unix_nano", np.array(columns.end_unix_nano, np.uint64))
    return columns
