"""Messages of the topics: one builder for each, which fills in what a test does not care about.

A builder takes the columns that matter, by their names in schemas/, and fields of the message as keywords. A column
that it is not given has the same default in every row.
"""

from collections.abc import Mapping as AbcMapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from icestream.columns import packed
from icestream.ids import series_id
from icestream.topics import DEFAULT_PROFILE_TYPE, RAW
from icestream.v1.activity_pb2 import ActivityBatch
from icestream.v1.common_pb2 import BatchId, Label, Mapping, Series, Source
from icestream.v1.raw_pb2 import RawBatch
from icestream.v1.samples_pb2 import SampleBatch
from icestream.v1.stacks_pb2 import StackBatch

WINDOW_NS = 5 * 10**9
PERIOD_NS = 10_000_000

Columns = AbcMapping[str, np.ndarray | Sequence[int]]

_RAW_SAMPLE = {
    "sample_offset_us": 0, "sample_series": 0, "sample_pid": 100, "sample_tid": 100, "sample_stack": 0,
    "sample_context": 0,
}  # fmt: skip
_LOCATION = {"location_mapping": 1, "location_address": 0}
_SAMPLE = {
    "sample_offset_ms": 0, "sample_series": 0, "sample_pid": 100, "sample_tid": 100, "sample_stack_id": 0,
    "sample_context": 0, "sample_count": 1, "sample_value": PERIOD_NS,
}  # fmt: skip
_STACK_LOCATION = _LOCATION | {"location_version": 0, "location_line_count": 0}
_LINE = {"line_function": 0, "line_file": 0, "line_number": 0, "line_start_line": 0}
_INTERVAL = {
    "interval_start_offset_ns": 0, "interval_duration_ns": 0, "interval_thread_cpu_ns": 0, "interval_pid": 100,
    "interval_tid": 100, "interval_context": 0, "interval_service": 0,
}  # fmt: skip


def batch_id(
    sequence: int = 1, host: str = "host-1", started_unix_nano: int = 1, part: int = 0, parts: int = 1
) -> BatchId:
    return BatchId(collector=host, started_unix_nano=started_unix_nano, sequence=sequence, part=part, parts=parts)


def raw_series(labels: AbcMapping[str, str]) -> Series:
    """A series without its ID, as collectors publish it."""
    return Series(labels=[Label(name=name, value=value) for name, value in labels.items()])


def sample_series(labels: AbcMapping[str, str]) -> Series:
    """A series with its ID, as stream processors publish it."""
    return Series(id=series_id(labels.items()), labels=raw_series(labels).labels)


def context(number: int) -> bytes:
    """A context of 24 bytes: a trace ID and a span ID that are both `number`."""
    return number.to_bytes(16, "big") + number.to_bytes(8, "big")


def contexts(trace_and_span_ids: Sequence[bytes]) -> dict[str, bytes]:
    """Fields of a message that hold contexts of 24 bytes."""
    return {
        "context_trace_ids": b"".join(ids[:16] for ids in trace_and_span_ids),
        "context_span_ids": b"".join(ids[16:] for ids in trace_and_span_ids),
    }


def raw_header(batch: BatchId, start_unix_nano: int, **fields: Any) -> RawBatch:
    """A raw batch of a window of 5 s, without columns, published at its end with the activity complete until then."""
    end = start_unix_nano + WINDOW_NS
    defaults: dict[str, Any] = {
        "host_id": batch.collector, "profile_type": DEFAULT_PROFILE_TYPE, "end_unix_nano": end, "period": PERIOD_NS,
        "published_unix_nano": end, "activity_complete_unix_nano": end, "strings": [""], "mappings": [Mapping()],
    }  # fmt: skip
    return RawBatch(id=batch, start_unix_nano=start_unix_nano, **(defaults | fields))


def raw_batch(batch: BatchId, start_unix_nano: int, columns: Columns, **fields: Any) -> bytes:
    return packed.serialize(raw_header(batch, start_unix_nano, **fields), _complete(columns, _RAW_SAMPLE, _LOCATION))


def activity_batch(batch: BatchId, start_unix_nano: int, columns: Columns, **fields: Any) -> bytes:
    """An activity batch, complete until `complete_unix_nano` and published then; by default this is its start."""
    complete = fields.get("complete_unix_nano", start_unix_nano)
    defaults = {
        "host_id": batch.collector, "complete_unix_nano": complete, "published_unix_nano": complete, "strings": [""]
    }  # fmt: skip
    message = ActivityBatch(id=batch, start_unix_nano=start_unix_nano, **(defaults | fields))
    return packed.serialize(message, _complete(columns, _INTERVAL))


def source(batch: BatchId, topic: str = RAW, offset: int = 0, part: int = 0, parts: int = 1) -> Source:
    """Where the samples of a batch come from: an offset of partition 0."""
    return Source(batch=batch, cluster="C", topic=topic, partition=0, offset=offset, part=part, parts=parts)


def sample_batch(of: Source, start_unix_milli: int, columns: Columns, **fields: Any) -> bytes:
    defaults = {"host_id": of.batch.collector, "profile_type": DEFAULT_PROFILE_TYPE}
    message = SampleBatch(source=of, start_unix_milli=start_unix_milli, **(defaults | fields))
    return packed.serialize(message, _complete(columns, _SAMPLE))


def stack_batch(columns: Columns, **fields: Any) -> bytes:
    message = StackBatch(**({"strings": [""], "mappings": [Mapping()]} | fields))
    return packed.serialize(message, _complete(columns, _STACK_LOCATION, _LINE))


def _complete(columns: Columns, *defaults: dict[str, int]) -> dict[str, np.ndarray]:
    """Returns the columns, and the defaults of each group of columns of which there is one."""
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    for group in defaults:
        rows = max((len(arrays[name]) for name in group if name in arrays), default=0)
        arrays = {name: np.full(rows, value) for name, value in group.items()} | arrays
    return arrays
