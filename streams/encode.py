"""Columns to the messages of icestream.stacks and icestream.samples, none larger than MAX_MESSAGE_BYTES."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from icestream import packed
from icestream.topics import MAX_MESSAGE_BYTES
from icestream.v1.common_pb2 import BatchId, Label, Series, Source
from icestream.v1.samples_pb2 import SampleBatch
from icestream.v1.stacks_pb2 import StackBatch
from streams.columns import RawColumns
from streams.deduplicate import Announcement
from streams.symbolize import Named

_ROW_BYTES = 40
_CONTEXT_BYTES = 24
_HEADER_BYTES = 16_000
"""More than everything of a message that is not a column can take: IDs of 1,024 characters, tags, lengths."""
_SERIES_TAG = bytes([SampleBatch.SERIES_FIELD_NUMBER << 3 | 2])
_BUDGET = MAX_MESSAGE_BYTES - _HEADER_BYTES
_LOCATION_BYTES = 300_000
"""More than the names of one location can take (see streams.symbolize)."""


@dataclass(frozen=True)
class MessageId:
    """Where an input message came from."""

    cluster: str
    topic: str
    partition: int
    offset: int

    def source(self, batch: BatchId) -> Source:
        return Source(
            batch=batch, cluster=self.cluster, topic=self.topic, partition=self.partition, offset=self.offset,
            part=0, parts=1,
        )  # fmt: skip


@dataclass(frozen=True)
class SampleRows:
    """n samples to publish."""

    host_id: str
    profile_type: str
    published_unix_nano: int
    series: list[bytes]  # serialized Series with IDs
    contexts: np.ndarray  # uint8 (c, 24)
    time_unix_nano: np.ndarray  # int64 (n,)
    sample_series: np.ndarray  # uint32 (n,), rows of `series`
    pid: np.ndarray  # uint32 (n,)
    tid: np.ndarray  # uint32 (n,)
    stack_id: np.ndarray  # uint64 (n,)
    context: np.ndarray  # uint32 (n,), 0: none, else row + 1 of `contexts`
    count: np.ndarray  # int32 (n,)
    value: np.ndarray  # int64 (n,)


def series_bytes(series_id: int, labels: Sequence[tuple[str, str]]) -> bytes:
    """A Series as SampleBatch holds it."""
    return Series(id=series_id, labels=[Label(name=n, value=v) for n, v in labels]).SerializeToString()


def sample_batches(source: Source, batches: Sequence[SampleRows]) -> list[bytes]:
    """SampleBatches of one source, in as many parts as needed; one without rows still makes a message."""
    pieces = [(rows, piece) for rows in batches for piece in _pieces(rows, 0, len(rows.time_unix_nano))]
    return [_sample_batch(_part(source, i, len(pieces)), rows, *piece) for i, (rows, piece) in enumerate(pieces)]


def stack_batches(
    source: Source,
    raw: RawColumns,
    announcement: Announcement,
    location_id: np.ndarray,
    names: Sequence[Named],
) -> list[bytes]:
    """Returns StackBatches of an announcement. `names`: in the order of `announcement.location_rows`."""
    nodes, locations = (
        (announcement.node_id, announcement.node_parent_id, announcement.node_location_id),
        announcement.location_rows,
    )
    costs = np.array([_location_bytes(raw, row, named) for row, named in zip(locations, names, strict=True)], np.int64)
    piece = (np.cumsum(np.concatenate([costs, np.full(len(nodes[0]), 24)])) - 1) // (_BUDGET - _LOCATION_BYTES)
    pieces = int(piece[-1]) + 1 if len(piece) else 0
    messages = []
    for i in range(pieces):
        inside = np.flatnonzero(piece == i)
        here = inside[inside < len(locations)]
        some = inside[inside >= len(locations)] - len(locations)
        messages.append(
            _stack_batch(
                _part(source, i, pieces),
                raw,
                [column[some] for column in nodes],
                locations[here],
                location_id,
                [names[j] for j in here],
            )
        )
    return messages


def _part(source: Source, part: int, parts: int) -> Source:
    one = Source()
    one.CopyFrom(source)
    one.part, one.parts = part, parts
    return one


def _pieces(rows: SampleRows, first: int, end: int) -> list[tuple[int, int]]:
    """Cuts rows into ranges whose messages are small enough."""
    size = (_ROW_BYTES + _CONTEXT_BYTES * bool(len(rows.contexts))) * (end - first)
    size += sum(len(rows.series[row]) + 6 for row in np.unique(rows.sample_series[first:end]))
    if size <= _BUDGET or end - first < 2:
        return [(first, end)]
    middle = (first + end) // 2
    return _pieces(rows, first, middle) + _pieces(rows, middle, end)


def _sample_batch(source: Source, rows: SampleRows, first: int, end: int) -> bytes:
    piece = slice(first, end)
    series, sample_series = _used(rows.sample_series[piece], len(rows.series))
    contexts, context = _used(rows.context[piece], len(rows.contexts) + 1, keep_zero=True)
    used = rows.contexts[contexts[1:] - 1]
    start_ms = int(rows.time_unix_nano[piece].min()) // 10**6 if end > first else 0
    message = SampleBatch(
        source=source,
        host_id=rows.host_id,
        profile_type=rows.profile_type,
        published_unix_nano=rows.published_unix_nano,
        start_unix_milli=start_ms,
        context_trace_ids=used[:, :16].tobytes(),
        context_span_ids=used[:, 16:].tobytes(),
    )
    serialized = packed.serialize(
        message,
        {
            "sample_offset_ms": (rows.time_unix_nano[piece] // 10**6 - start_ms).astype(np.uint32),
            "sample_series": sample_series,
            "sample_pid": rows.pid[piece],
            "sample_tid": rows.tid[piece],
            "sample_stack_id": rows.stack_id[piece],
            "sample_context": context,
            "sample_count": rows.count[piece],
            "sample_value": rows.value[piece],
        },
    )
    blobs = [rows.series[row] for row in series.tolist()]
    return serialized + b"".join(_SERIES_TAG + packed.varint(len(blob)) + blob for blob in blobs)


def _used(index: np.ndarray, size: int, keep_zero: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The rows that an index refers to, ascending, and the index into those; `keep_zero` keeps row 0 in any case."""
    mask = np.zeros(size, dtype=bool)
    mask[index] = True
    if keep_zero:
        mask[0] = True
    place = np.cumsum(mask, dtype=np.uint32) - np.uint32(1)
    return np.flatnonzero(mask), place[index]


def _stack_batch(
    source: Source,
    raw: RawColumns,
    nodes: list[np.ndarray],
    locations: np.ndarray,
    location_id: np.ndarray,
    names: list[Named],
) -> bytes:
    strings: dict[str, int] = {"": 0}
    mapping_rows, location_mapping = np.unique(raw.location_mapping[locations], return_inverse=True)
    lines = [line for named in names for line in named.lines]
    line_columns = {
        "line_function": [strings.setdefault(line.function, len(strings)) for line in lines],
        "line_file": [strings.setdefault(line.file, len(strings)) for line in lines],
        "line_number": [line.line for line in lines],
        "line_start_line": [line.start_line for line in lines],
    }
    message = StackBatch(
        source=source,
        published_unix_nano=raw.published_unix_nano,
        seen_unix_nano=raw.start_unix_nano,
        strings=list(strings),
        mappings=[raw.mappings[row] for row in mapping_rows],
    )
    return packed.serialize(
        message,
        {
            "node_id": nodes[0],
            "node_parent_id": nodes[1],
            "node_location_id": nodes[2],
            "location_id": location_id[locations],
            "location_mapping": location_mapping.astype(np.uint32),
            "location_address": raw.location_address[locations],
            "location_version": np.array([named.version for named in names], dtype=np.uint64),
            "location_line_count": np.array([len(named.lines) for named in names], dtype=np.uint32),
            **{name: np.array(values, dtype=np.uint32) for name, values in line_columns.items()},
        },
    )


def _location_bytes(raw: RawColumns, row: int, named: Named) -> int:
    """At most what announcing a location takes; strings and mappings counted as if no other location shared them."""
    mapping = raw.mappings[raw.location_mapping[row]]
    size = 40 + len(mapping.build_id.encode()) + len(mapping.file.encode())
    return size + sum(28 + len(line.function.encode()) + len(line.file.encode()) for line in named.lines)
