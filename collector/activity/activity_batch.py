"""Intervals of activity -> the messages of one ActivityBatch, times as Unix times."""

from collections.abc import Iterator

import numpy as np

from collector.activity.intervals import ActivityIntervals
from icestream.columns import packed
from icestream.columns.row_indices import renumber, take_rows
from icestream.messages.raw_encoder import HEADER_BYTES
from icestream.topics import MAX_MESSAGE_BYTES
from icestream.v1.activity_pb2 import ActivityBatch, Span
from icestream.v1.common_pb2 import BatchId

_MAX_NAME = 1000
_MAX_NS = 2**62


def split(
    intervals: ActivityIntervals, offset_ns: int, common: ActivityBatch, limit: int = MAX_MESSAGE_BYTES
) -> list[bytes]:
    """Serialized parts without BatchId; `common` has the fields that all share, and `dropped` is in the first only."""
    rows = np.arange(len(intervals.start_monotonic_ns))
    parts = list(_halve(intervals, rows, intervals.spans, offset_ns, common, limit - HEADER_BYTES))
    return [part + ActivityBatch(dropped=intervals.dropped).SerializeToString() for part in parts[:1]] + parts[1:]


def finish(parts: list[bytes], batch_id: BatchId, published_unix_nano: int) -> list[bytes]:
    """The parts with their IDs and time of publishing."""
    finished = []
    for i, part in enumerate(parts):
        ending = ActivityBatch(id=batch_id, published_unix_nano=published_unix_nano)
        ending.id.part, ending.id.parts = i, len(parts)
        finished.append(part + ending.SerializeToString())
    return finished


def _halve(
    intervals: ActivityIntervals, rows: np.ndarray, spans: list[Span], offset_ns: int, common: ActivityBatch, limit: int
) -> Iterator[bytes]:
    part = _part(intervals, rows, spans, offset_ns, common)
    if len(part) <= limit or len(rows) + len(spans) <= 2:
        yield part
        return
    row, span = len(rows) // 2, len(spans) // 2
    if len(rows) <= 1:
        row = len(rows) if span else 0
    yield from _halve(intervals, rows[:row], spans[:span], offset_ns, common, limit)
    yield from _halve(intervals, rows[row:], spans[span:], offset_ns, common, limit)


def _part(
    intervals: ActivityIntervals, rows: np.ndarray, spans: list[Span], offset_ns: int, common: ActivityBatch
) -> bytes:
    message = ActivityBatch()
    message.CopyFrom(common)
    starts = _bounded(intervals.start_monotonic_ns[rows])
    message.start_unix_nano = max(0, (int(starts.min()) if len(rows) else 0) + offset_ns)
    contexts, context_row = renumber(intervals.context[rows], len(intervals.trace_ids) // 16)
    message.context_trace_ids = take_rows(intervals.trace_ids, 16, contexts)
    message.context_span_ids = take_rows(intervals.span_ids, 8, contexts)
    services, service_row = renumber(intervals.service[rows], len(intervals.strings))
    strings = {"": 0}

    def string_rows(used: np.ndarray) -> np.ndarray:
        texts = (intervals.strings[row][:_MAX_NAME] for row in used.tolist())
        return np.array([strings.setdefault(text, len(strings)) for text in texts], np.int64)

    columns = {"interval_service": string_rows(services)[service_row]}
    if intervals.labels.any():
        sets, labels_row = renumber(intervals.labels[rows], len(intervals.strings))
        columns["interval_labels"] = string_rows(sets)[labels_row]
    if len(intervals.operation):
        message.context_entry_span_ids = take_rows(intervals.entry_span_ids, 8, contexts)
        columns["context_operation"] = string_rows(intervals.operation[contexts])
    message.strings.extend(strings)
    message.spans.extend(_unix(span, offset_ns) for span in spans)
    return packed.serialize(
        message,
        {
            "interval_start_offset_ns": starts + (offset_ns - message.start_unix_nano),
            "interval_duration_ns": _bounded(intervals.duration_ns[rows]),
            "interval_thread_cpu_ns": _bounded(intervals.thread_cpu_ns[rows]),
            "interval_pid": intervals.pid[rows],
            "interval_tid": intervals.tid[rows],
            "interval_context": context_row,
        }
        | columns,
    )


def _unix(span: Span, offset_ns: int) -> Span:
    converted = Span()
    converted.CopyFrom(span)
    converted.name, converted.service = span.name[:_MAX_NAME], span.service[:_MAX_NAME]
    converted.operation = span.operation[:_MAX_NAME]
    converted.start_unix_nano = min(max(0, span.start_unix_nano + offset_ns), _MAX_NS)
    converted.end_unix_nano = min(max(0, span.end_unix_nano + offset_ns), _MAX_NS)
    return converted


def _bounded(nanos: np.ndarray) -> np.ndarray:
    """As int64; applications may say anything."""
    bounded: np.ndarray = np.minimum(nanos, np.uint64(_MAX_NS)).astype(np.int64)
    return bounded
