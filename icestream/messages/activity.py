"""icestream.activity: ActivityBatch as columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from icestream.columns import message_columns, packed
from icestream.columns.message_columns import Texts
from icestream.messages import checks, joined_columns
from icestream.messages.checks import BadMessage
from icestream.messages.plausible import ANY_TIME, Times
from icestream.times import MAX_UNIX_NANO
from icestream.v1.activity_pb2 import ActivityBatch, Span
from icestream.v1.common_pb2 import BatchId


class SpanColumns(NamedTuple):
    """The fields of s spans."""

    trace_id: np.ndarray  # uint8 (s, 16)
    span_id: np.ndarray  # uint8 (s, 8)
    parent_span_id: np.ndarray  # uint8 (s, 8), zeros: a root
    name: Texts
    service: Texts
    start_unix_nano: np.ndarray  # int64 (s,)
    end_unix_nano: np.ndarray  # int64 (s,)
    operation: Texts  # of entry spans; "": it is none, or that is not known
    labels: Texts  # sets of labels (icestream/labels/request_labels.py)
    status: np.ndarray  # integers (s,), index into STATUSES

    def rows(self, first: int, end: int) -> "SpanColumns":
        return SpanColumns._make(c.rows(first, end) if isinstance(c, Texts) else c[first:end] for c in self)


STATUSES = ("", "ok", "error")
"""What the numbers of a status stand for; "": not set."""
_MAX_INT64 = np.uint64(2**63 - 1)


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
    labels: np.ndarray  # uint32 (n,), index into strings: sets of labels
    spans: SpanColumns

    @property
    def end_unix_nano(self) -> np.ndarray:
        """int64 (n,); an interval covers [start, end)."""
        return self.start_unix_nano + self.duration_ns.astype(np.int64)

    def time_range(self) -> tuple[int, int]:
        """Returns the first and the last moment of intervals, spans and complete_unix_nano, Unix nanoseconds."""
        start = self.spans.start_unix_nano.min(initial=self.complete_unix_nano)
        end = self.spans.end_unix_nano.max(initial=self.complete_unix_nano)
        return int(self.start_unix_nano.min(initial=start)), int(self.end_unix_nano.max(initial=end))


def decode_activity(data: bytes | None, times: Times = ANY_TIME) -> ActivityColumns:
    """Raises BadMessage."""
    return decode_activities([data], [times])[0]


def decode_activities(messages: Sequence[bytes | None], times: Sequence[Times]) -> list[ActivityColumns]:
    """Decodes several messages, which takes less time than one after the other. Raises BadMessage if any of them is
    bad."""
    unread = "spans" if len(messages) > 1 else ""
    parsed = [checks.parse(ActivityBatch, data, unread) for data in messages]
    for message, limits in zip(parsed, times, strict=True):
        _check_header(message, limits)
    strings = [checks.strings(message.strings) for message in parsed]
    contexts = [checks.contexts(message.context_trace_ids, message.context_span_ids) for message in parsed]
    intervals = _intervals(parsed, contexts, strings, times)
    spans = _spans(parsed, times)
    return [_columns(*one) for one in zip(parsed, strings, contexts, intervals, spans, strict=True)]


def _check_header(message: ActivityBatch, times: Times) -> None:
    checks.check_batch_id("id", message.id)
    checks.check_id("host_id", message.host_id)
    times.check("start_unix_nano", message.start_unix_nano)
    times.check("complete_unix_nano", message.complete_unix_nano)
    times.check_or_zero("published_unix_nano", message.published_unix_nano)
    checks.check_most("dropped", message.dropped, checks.MAX_COUNT)
    checks.check_clock_offset(message.clock_offset_ns)


def _columns(
    message: ActivityBatch, strings: list[str], contexts: np.ndarray, intervals: dict[str, np.ndarray],
    spans: SpanColumns,
) -> ActivityColumns:  # fmt: skip
    operation = checks.column(message, "context_operation", len(contexts), 0)
    checks.check_index("context_operation", operation, len(strings))
    checks.check_rows_text("context_operation", operation[intervals["context"]], strings)
    checks.check_rows_text("interval_service", intervals["service"], strings)
    labels = checks.column(message, "interval_labels", len(intervals["service"]), 0)
    checks.check_index("interval_labels", labels, len(strings))
    checks.check_rows_text("interval_labels", labels, strings)
    for row in np.unique(labels).tolist():
        checks.check_label_set("interval_labels", strings[row])
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
        labels=labels,
        spans=spans,
        **intervals,
    )


def _intervals(
    messages: Sequence[ActivityBatch],
    contexts: Sequence[np.ndarray],
    strings: Sequence[Sequence[str]],
    times: Sequence[Times],
) -> list[dict[str, np.ndarray]]:
    """Returns the columns of each message's intervals."""
    names = ("start_offset_ns", "duration_ns", "thread_cpu_ns", "pid", "tid", "context", "service")
    counts, (offset, *rest) = joined_columns.columns(messages, *(f"interval_{name}" for name in names))
    values = dict(zip(names[1:], rest, strict=True))
    joined_columns.check_index("interval_context", values["context"], list(map(len, contexts)), counts)
    joined_columns.check_index("interval_service", values["service"], list(map(len, strings)), counts)
    checks.check_sum("interval_thread_cpu_ns", values["thread_cpu_ns"])
    # Limits below which the sums that follow do not overflow.
    checks.check_column("interval_start_offset_ns", np.abs(offset.astype(float)), MAX_UNIX_NANO)
    checks.check_column("interval_duration_ns", values["duration_ns"], MAX_UNIX_NANO)
    start = offset + joined_columns.of_rows([message.start_unix_nano for message in messages], counts)
    joined_columns.check_times("interval_start_offset_ns", start, times, counts)
    joined_columns.check_times("interval_duration_ns", start + values["duration_ns"].astype(np.int64), times, counts)
    parts: list[dict[str, np.ndarray]] = [{} for _ in messages]
    joined_columns.split({"start_unix_nano": start, **values}, counts, parts)
    return parts


def _entry_span_ids(data: bytes, contexts: int) -> np.ndarray:
    if len(data) not in (0, 8 * contexts):
        raise BadMessage("context_entry_span_ids", f"expected 8 bytes for each context, got {len(data)}")
    return np.frombuffer(data or bytes(8 * contexts), np.uint8).reshape(contexts, 8)


def _spans(messages: Sequence[ActivityBatch], times: Sequence[Times]) -> list[SpanColumns]:
    """Returns the spans of each message."""
    counts = np.array([len(message.spans) for message in messages])
    if len(messages) == 1:
        columns = message_columns.of_parsed(Span, messages[0].spans)
    else:
        serialized = chain.from_iterable(packed.messages(message, "spans") for message in messages)
        try:
            columns = message_columns.read(Span, list(serialized))
        except DecodeError as error:
            raise BadMessage(ActivityBatch.DESCRIPTOR.name, f"cannot be read: {error}") from None
    texts = columns.texts
    _check_spans(texts, columns.numbers["status"])
    spans = SpanColumns(
        trace_id=texts["trace_id"].padded(16),
        span_id=texts["span_id"].padded(8),
        parent_span_id=texts["parent_span_id"].padded(8),
        name=texts["name"],
        service=texts["service"],
        start_unix_nano=np.minimum(columns.numbers["start_unix_nano"], _MAX_INT64).astype(np.int64),
        end_unix_nano=np.minimum(columns.numbers["end_unix_nano"], _MAX_INT64).astype(np.int64),
        operation=texts["operation"],
        labels=texts["labels"],
        status=columns.numbers["status"],
    )
    joined_columns.check_times("spans.start_unix_nano", spans.start_unix_nano, times, counts)
    joined_columns.check_times("spans.end_unix_nano", spans.end_unix_nano, times, counts)
    if len(messages) == 1:
        return [spans]
    ends = np.cumsum(counts).tolist()
    return [spans.rows(end - one, end) for one, end in zip(counts.tolist(), ends, strict=True)]


def _check_spans(texts: Mapping[str, Texts], status: np.ndarray) -> None:
    sizes = [texts[name].lengths for name in ("trace_id", "span_id", "parent_span_id")]
    right = (sizes[0] == 16) & (sizes[1] == 8) & ((sizes[2] == 8) | (sizes[2] == 0))
    if not right.all():
        got = min(map(tuple, np.stack(sizes, axis=1)[~right].tolist()))
        raise BadMessage("spans", f"expected IDs of 16, 8, and 8 or 0 bytes, got {got}")
    for name in ("name", "operation", "service", "labels"):
        lengths = texts[name].lengths  # bytes: a text may have fewer characters
        if lengths.max(initial=0) > checks.MAX_TEXT:
            for row in np.flatnonzero(lengths > checks.MAX_TEXT).tolist():
                checks.check_text(f"spans.{name}", texts[name].text(row), least=0)
    if texts["labels"].lengths.any():
        for labels in texts["labels"].unique():
            checks.check_label_set("spans.labels", labels)
    checks.check_most("spans.status", int(status.max(initial=0)), len(STATUSES) - 1)
