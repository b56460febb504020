"""Bytes from Kafka to checked columns. Whatever the bytes are: columns, or a BadMessage with the reason."""

import functools
from typing import TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message

from icestream import packed
from icestream.topics import MAX_MESSAGE_BYTES
from icestream.v1.activity_pb2 import ActivityBatch
from icestream.v1.common_pb2 import BatchId, Mapping, Series
from icestream.v1.raw_pb2 import RawBatch
from streams.columns import ActivityColumns, RawColumns

MAX_DEPTH = 4096
"""Frames in a stack."""
MAX_PARTS = 10_000
MAX_TEXT_BYTES = 1024
"""Length of IDs and of a label's name or value."""
MAX_LABELS = 256
TIME_LIMIT_NS = 2**62
"""Times are before the year 2116, so that sums of two do not overflow."""
SUM_LIMIT = 2.0**62
"""Values of one batch sum up to less, so that neither a sum nor its negative overflows."""

MessageT = TypeVar("MessageT", bound=Message)


class BadMessage(ValueError):
    """A message that cannot be processed; the text says what was expected and what came."""


def decode_raw(data: bytes) -> RawColumns:
    """A RawBatch's columns. Raises BadMessage."""
    message = _parse(RawBatch, data)
    _check_batch_id(message.id)
    _check_text("host_id", message.host_id)
    if message.profile_type.count(":") != 4 or len(message.profile_type) > MAX_TEXT_BYTES:
        raise BadMessage(
            f"profile_type: expected name:type:unit:period type:period unit, got {_cut(message.profile_type)}"
        )
    start, end = message.start_unix_nano, message.end_unix_nano
    _check_time("start_unix_nano", start)
    _check_time("end_unix_nano", end)
    if start > end:
        raise BadMessage(f"the window ends ({end}) before it starts ({start})")
    _check_time("activity_complete_unix_nano", message.activity_complete_unix_nano)
    _check_time("published_unix_nano", message.published_unix_nano)
    # A batch in which nothing is named may have no strings at all; then every index is 0.
    strings = list(message.strings) or [""]
    if strings[0]:
        raise BadMessage('strings[0]: expected ""')
    mappings = [_mapping(mapping) for mapping in message.mappings]
    contexts, context = _contexts(message.context_trace_ids, message.context_span_ids, True)
    samples = _samples(message, len(contexts), context)
    return RawColumns(
        id=message.id,
        host_id=message.host_id,
        profile_type=message.profile_type,
        start_unix_nano=start,
        end_unix_nano=end,
        period=message.period,
        published_unix_nano=message.published_unix_nano,
        activity_complete_unix_nano=message.activity_complete_unix_nano,
        activity_sequence=message.activity_sequence,
        lost_samples=message.lost_samples,
        strings=strings,
        mappings=mappings,
        series=[_labels(series.SerializeToString()) for series in message.series],
        contexts=contexts,
        **_locations(message, len(strings), mappings),
        **_stacks(message),
        **samples,
    )


def decode_activity(data: bytes) -> ActivityColumns:
    """An ActivityBatch's intervals; those without a trace are left out. Raises BadMessage."""
    message = _parse(ActivityBatch, data)
    _check_batch_id(message.id)
    _check_text("host_id", message.host_id)
    _check_time("start_unix_nano", message.start_unix_nano)
    _check_time("complete_unix_nano", message.complete_unix_nano)
    _check_time("published_unix_nano", message.published_unix_nano)
    start = packed.column(message, "interval_start_offset_ns")
    rows = len(start)
    columns = {
        name: _column(message, f"interval_{name}", rows)
        for name in ("duration_ns", "thread_cpu_ns", "pid", "tid", "context", "service")
    }
    contexts, _ = _contexts(message.context_trace_ids, message.context_span_ids, False)
    _check_index("interval_context", columns["context"], len(contexts))
    _check_index("interval_service", columns["service"], max(len(message.strings), 1))
    if rows and (np.abs(start.astype(float)).max() >= TIME_LIMIT_NS or columns["duration_ns"].max() >= TIME_LIMIT_NS):
        raise BadMessage("interval_start_offset_ns or interval_duration_ns: more than 146 years")
    start_unix_nano = start + message.start_unix_nano
    end_unix_nano = start_unix_nano + columns["duration_ns"].astype(np.int64)
    if rows and (start_unix_nano.min() < 0 or end_unix_nano.min() < 0 or end_unix_nano.max() >= TIME_LIMIT_NS):
        raise BadMessage("intervals: not within the years 1970 to 2116")
    for span in message.spans:
        if len(span.trace_id) != 16 or len(span.span_id) != 8 or len(span.parent_span_id) not in (0, 8):
            raise BadMessage("spans: expected IDs of 16, 8 and 8 bytes")
    interval_contexts = contexts[columns["context"]]
    traced = interval_contexts[:, :16].any(axis=1)
    return ActivityColumns(
        id=message.id,
        host_id=message.host_id,
        complete_unix_nano=message.complete_unix_nano,
        published_unix_nano=message.published_unix_nano,
        dropped=message.dropped,
        tid=columns["tid"][traced],
        start_unix_nano=start_unix_nano[traced],
        end_unix_nano=end_unix_nano[traced],
        contexts=interval_contexts[traced],
    )


def _parse(kind: type[MessageT], data: bytes) -> MessageT:
    name = kind.DESCRIPTOR.name
    if len(data) > MAX_MESSAGE_BYTES:
        raise BadMessage(f"{name}: {len(data)} bytes; no message may be larger than {MAX_MESSAGE_BYTES}")
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise BadMessage(f"not a {name}: {error}") from None
    return message


def _locations(message: RawBatch, strings: int, mappings: list[Mapping]) -> dict[str, np.ndarray]:
    mapping = packed.column(message, "location_mapping")
    rows = len(mapping)
    _check_index("location_mapping", mapping, len(mappings))
    address = _column(message, "location_address", rows)
    names = {name: _column(message, name, rows, optional=True)
             for name in ("location_function", "location_file", "location_line")}  # fmt: skip
    _check_index("location_function", names["location_function"], strings)
    _check_index("location_file", names["location_file"], strings)
    named = np.array([m.kind == Mapping.NAMED for m in mappings], dtype=bool)
    if rows:
        address[named[mapping]] = 0
    return {"location_mapping": mapping, "location_address": address, **names}


def _stacks(message: RawBatch) -> dict[str, np.ndarray]:
    depth = packed.column(message, "stack_depth").astype(np.int64)
    frames = packed.column(message, "stack_frames")
    if len(depth) and depth.max() > MAX_DEPTH:
        raise BadMessage(f"stack_depth: at most {MAX_DEPTH} frames, got {depth.max()}")
    if depth.sum() != len(frames):
        raise BadMessage(f"stack_depth says {depth.sum()} frames, stack_frames has {len(frames)}")
    _check_index("stack_frames", frames, len(message.location_mapping))
    return {"stack_depth": depth, "stack_frames": frames}


def _samples(message: RawBatch, contexts: int, context_rows: np.ndarray) -> dict[str, np.ndarray]:
    time_us = packed.column(message, "sample_offset_us")
    rows = len(time_us)
    window = message.end_unix_nano - message.start_unix_nano
    if rows and int(time_us.max()) * 1000 >= window:
        raise BadMessage(f"sample_offset_us: {time_us.max()} is not within the window of {window // 1000} us")
    series, pid, tid, stack = (_column(message, f"sample_{name}", rows) for name in ("series", "pid", "tid", "stack"))
    context = _column(message, "sample_context", rows, optional=True)
    _check_index("sample_series", series, len(message.series))
    _check_index("sample_stack", stack, len(message.stack_depth))
    _check_index("sample_context", context, len(context_rows))
    count, value = _amounts(message, rows)
    return {
        "time_unix_nano": time_us.astype(np.int64) * 1000 + message.start_unix_nano,
        "sample_series": series,
        "sample_pid": pid,
        "sample_tid": tid,
        "sample_stack": stack,
        "sample_context": context_rows[context],
        "sample_count": count,
        "sample_value": value,
    }


def _amounts(message: RawBatch, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts, int32, and values, int64, with their defaults filled in."""
    count = np.ones(rows, np.uint32) if not message.sample_count else _column(message, "sample_count", rows)
    if rows and count.max() >= 2**31:
        raise BadMessage(f"sample_count: {count.max()} observations in one sample")
    if message.sample_value:
        value = _column(message, "sample_value", rows)
        total = np.abs(value.astype(float)).sum()
    else:
        total = count.sum(dtype=float) * float(message.period)
        value = count.astype(np.int64) * message.period if total < SUM_LIMIT else count
    if total >= SUM_LIMIT:
        raise BadMessage(f"sample values sum up to {total:.3g}, more than {SUM_LIMIT:.3g}")
    return count.astype(np.int32), value.astype(np.int64)


def _contexts(trace_ids: bytes, span_ids: bytes, none_first: bool) -> tuple[np.ndarray, np.ndarray]:
    """Contexts as (c, 24) bytes, and, for indices where 0 means none, the row to use for each: 0 for a zero trace."""
    if len(trace_ids) % 16 or len(span_ids) % 8 or len(trace_ids) // 16 != len(span_ids) // 8:
        raise BadMessage(f"contexts: {len(trace_ids)} bytes of trace IDs do not go with {len(span_ids)} of span IDs")
    contexts = np.hstack(
        [np.frombuffer(trace_ids, np.uint8).reshape(-1, 16), np.frombuffer(span_ids, np.uint8).reshape(-1, 8)]
    )
    rows = np.arange(len(contexts) + 1, dtype=np.uint32)
    if none_first:
        rows[1:][~contexts[:, :16].any(axis=1)] = 0
    return contexts, rows


def _mapping(mapping: Mapping) -> Mapping:
    if mapping.kind not in Mapping.Kind.values():
        raise BadMessage(f"mappings: no kind {mapping.kind}")
    if len(mapping.build_id) > MAX_TEXT_BYTES or len(mapping.file) > 4 * MAX_TEXT_BYTES:
        raise BadMessage(f"mappings: a build ID or path is too long: {_cut(mapping.build_id or mapping.file)}")
    return mapping


@functools.lru_cache(maxsize=50_000)
def _labels(serialized: bytes) -> tuple[tuple[str, str], ...]:
    series = Series.FromString(serialized)
    labels = sorted((label.name, label.value) for label in series.labels if label.value)
    if len(labels) > MAX_LABELS:
        raise BadMessage(f"series: {len(labels)} labels; at most {MAX_LABELS}")
    if len({name for name, _ in labels}) != len(labels):
        raise BadMessage(f"series: a label twice in {_cut(str(labels))}")
    for name, value in labels:
        _check_text("label name", name)
        _check_text("label value", value)
    return tuple(labels)


def _column(message: Message, name: str, rows: int, optional: bool = False) -> np.ndarray:
    values = packed.column(message, name)
    if optional and not len(values):
        return np.zeros(rows, values.dtype)
    if len(values) != rows:
        raise BadMessage(f"{name}: {len(values)} entries, but its rows are {rows}")
    return values


def _check_index(name: str, values: np.ndarray, limit: int) -> None:
    if len(values) and values.max() >= limit:
        raise BadMessage(f"{name}: {values.max()} is past the end, there are {limit}")


def _check_batch_id(batch_id: BatchId) -> None:
    _check_text("id.collector", batch_id.collector)
    _check_time("id.started_unix_nano", batch_id.started_unix_nano)
    if not 1 <= batch_id.sequence < 2**62:
        raise BadMessage(f"id.sequence: expected 1 or more, got {batch_id.sequence}")
    if not batch_id.part < batch_id.parts <= MAX_PARTS:
        raise BadMessage(f"id: part {batch_id.part} of {batch_id.parts}; at most {MAX_PARTS}, counted from 0")


def _check_time(name: str, nanos: int) -> None:
    if nanos >= TIME_LIMIT_NS:
        raise BadMessage(f"{name}: {nanos} is after the year 2116")


def _check_text(name: str, text: str) -> None:
    if not 0 < len(text) <= MAX_TEXT_BYTES:
        raise BadMessage(f"{name}: expected 1 to {MAX_TEXT_BYTES} characters, got {_cut(text)}")


def _cut(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
