"""Rows of samples as messages of icestream.samples, none larger than MAX_MESSAGE_BYTES."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from icestream.columns import packed
from icestream.columns.row_indices import renumber
from icestream.topics import MAX_MESSAGE_BYTES
from icestream.v1.common_pb2 import Source
from icestream.v1.samples_pb2 import SampleBatch

_ROW_BYTES = 40
_CONTEXT_BYTES = 24
_HEADER_BYTES = 16_000
"""More than all of a message but its columns and series takes: IDs of 1,024 characters, tags, lengths."""
_SERIES_TAG = bytes([SampleBatch.SERIES_FIELD_NUMBER << 3 | 2])
_BUDGET = MAX_MESSAGE_BYTES - _HEADER_BYTES


@dataclass(frozen=True)
class RawFigures:
    """What a raw batch says of its window. Messages without rows take their time from it."""

    start_unix_nano: int
    period: int
    configured_period: int
    lost_samples: int
    dropped_samples: int


@dataclass(frozen=True)
class SampleRows:
    """n samples to publish."""

    host_id: str
    profile_type: str
    published_unix_nano: int
    series: list[bytes]  # serialized Series with IDs
    contexts: np.ndarray  # uint8 (c, 24)
    operations: np.ndarray  # object (c,), str; "" where it is not known
    time_unix_nano: np.ndarray  # int64 (n,)
    sample_series: np.ndarray  # uint32 (n,), rows of `series`
    pid: np.ndarray  # uint32 (n,)
    tid: np.ndarray  # uint32 (n,)
    stack_id: np.ndarray  # uint64 (n,)
    context: np.ndarray  # uint32 (n,), 0: none, else row + 1 of `contexts`
    count: np.ndarray  # int32 (n,)
    value: np.ndarray  # int64 (n,)
    raw: RawFigures | None = None  # None: a correction


def encode_samples(source: Source, batches: Sequence[SampleRows]) -> list[bytes]:
    """Returns SampleBatches of one source, in as many parts as are needed. No rows still make one message."""
    pieces = [
        (rows, piece) for rows in batches for piece in cut(rows.series, rows.sample_series, bool(len(rows.contexts)))
    ]
    return [_sample_batch(_part(source, i, len(pieces)), rows, *piece) for i, (rows, piece) in enumerate(pieces)]


def _part(source: Source, part: int, parts: int) -> Source:
    copy = Source()
    copy.CopyFrom(source)
    copy.part, copy.parts = part, parts
    return copy


def cut(series: Sequence[bytes], sample_series: np.ndarray, contexts: bool) -> list[tuple[int, int]]:
    """Returns the ranges of rows, [first, end), that become one message each: each is small enough.

    `sample_series`: of all rows, indices into `series`; `contexts`: whether there are any.
    """
    end = len(sample_series)
    most = (_ROW_BYTES + _CONTEXT_BYTES) * end + sum(len(one) + 6 for one in series)
    return [(0, end)] if most <= _BUDGET else _pieces(series, sample_series, contexts, 0, end)


def _pieces(
    series: Sequence[bytes], sample_series: np.ndarray, contexts: bool, first: int, end: int
) -> list[tuple[int, int]]:
    size = (_ROW_BYTES + _CONTEXT_BYTES * contexts) * (end - first)
    size += sum(len(series[row]) + 6 for row in np.unique(sample_series[first:end]))
    if size <= _BUDGET or end - first < 2:
        return [(first, end)]
    middle = (first + end) // 2
    return _pieces(series, sample_series, contexts, first, middle) + _pieces(
        series, sample_series, contexts, middle, end
    )


def _sample_batch(source: Source, rows: SampleRows, first: int, end: int) -> bytes:
    piece = slice(first, end)
    series, sample_series = renumber(rows.sample_series[piece], len(rows.series))
    contexts, context = renumber(rows.context[piece], len(rows.contexts) + 1, always=0)
    used = rows.contexts[contexts[1:] - 1]
    raw = rows.raw
    start_unix_nano = int(rows.time_unix_nano[piece].min()) if end > first else raw.start_unix_nano if raw else 0
    start_ms = start_unix_nano // 10**6
    message = SampleBatch(
        source=source,
        host_id=rows.host_id,
        profile_type=rows.profile_type,
        published_unix_nano=rows.published_unix_nano,
        start_unix_milli=start_ms,
        context_trace_ids=used[:, :16].tobytes(),
        context_span_ids=used[:, 16:].tobytes(),
    )
    if raw is not None:
        message.period, message.configured_period = raw.period, raw.configured_period
        if source.part == 0:
            message.lost_samples, message.dropped_samples = raw.lost_samples, raw.dropped_samples
    columns = {
        "sample_offset_ms": (rows.time_unix_nano[piece] // 10**6 - start_ms).astype(np.uint32),
        "sample_series": sample_series,
        "sample_pid": rows.pid[piece],
        "sample_tid": rows.tid[piece],
        "sample_stack_id": rows.stack_id[piece],
        "sample_context": context,
        "sample_count": rows.count[piece],
        "sample_value": rows.value[piece],
    }
    blobs = [rows.series[row] for row in series.tolist()]
    tail = b"".join(_SERIES_TAG + packed.varint(len(blob)) + blob for blob in blobs)
    unnamed = packed.serialize(message, columns) + tail
    named = unnamed + _operations(rows.operations[contexts[1:] - 1])
    # Without names if it is too large: how rows are cut into messages depends on nothing that a backfill does not know.
    return named if len(named) <= MAX_MESSAGE_BYTES else unnamed


def _operations(of_context: np.ndarray) -> bytes:
    """The fields of a SampleBatch with the operations of its contexts."""
    rows = {"": 0}
    column = np.array([rows.setdefault(text, len(rows)) for text in of_context.tolist()], np.uint32)
    if len(rows) == 1:
        return b""
    return packed.serialize(SampleBatch(operations=rows), {"context_operation": column})
