"""Recomputes a slice of a time range: reads its messages, and runs them through the stream processors' operators.

It gives all activity of a unit to the operators first, so that every sample finds its trace context: nothing is late,
and there are no corrections. In memory are the activity of one partition and slice, and the rows of one insert.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from icestream.messages.activity import decode_activity
from icestream.messages.checks import BadMessage
from icestream.messages.message_id import MessageId
from icestream.messages.raw import decode_raw
from icestream.messages.samples import decode_samples
from icestream.messages.stacks import decode_stacks
from icestream.topics import ACTIVITY, RAW
from jobs.sources import ArchiveSource
from jobs.time_range import TimeRange
from sinks import stored_batches
from sinks.archive import Archived
from sinks.stored_batches import Batch
from sinks.tables.activity import activity_tables
from sinks.tables.arrow import concat
from sinks.tables.samples import sample_tables, series_table
from sinks.tables.stacks import stack_tables
from streams.process import Operators, Processor
from streams.retained import Limits

_INSERT_ROWS = 200_000


@dataclass(frozen=True)
class Unit:
    """What one process recomputes at a time: a slice of one partition."""

    time_range: TimeRange
    partition: int


@dataclass
class Counts:
    """What was recomputed."""

    samples: int = 0
    batches: int = 0
    """Each batch counts in the slice in which it starts."""
    bad: int = 0
    """Messages that cannot be decoded."""

    def add(self, other: "Counts") -> None:
        self.samples += other.samples
        self.batches += other.batches
        self.bad += other.bad


Rows = tuple[str, pa.Table]
"""The name of a table, and rows for it."""


def recompute(source: ArchiveSource, operators: Operators, unit: Unit, counts: Counts, block: str) -> Iterator[Rows]:
    """Yields the rows of a unit in portions, and adds to `counts`. `block`: of rows of `batches`. Raises OSError."""
    batches = _Batches(block)
    waiting: dict[str, list[pa.Table]] = {}
    rows_waiting: Counter[str] = Counter()
    for name, rows in _rows(source, operators, unit, counts, batches):
        if rows.num_rows:
            waiting.setdefault(name, []).append(rows)
            rows_waiting[name] += rows.num_rows
            if rows_waiting[name] >= _INSERT_ROWS:
                del rows_waiting[name]
                yield name, concat(waiting.pop(name))
    for name, tables in waiting.items():
        yield name, concat(tables)
    yield "batches", batches.table()


def _rows(
    source: ArchiveSource, operators: Operators, unit: Unit, counts: Counts, batches: "_Batches"
) -> Iterator[Rows]:
    processor = Processor(operators, Limits(complete=True))
    time_range = unit.time_range
    for message in source.read(ACTIVITY, time_range, unit.partition):
        message_id = _message_id(message, ACTIVITY)
        try:
            columns = decode_activity(message.value, source.limits.collected(message.timestamp_ms))
        except BadMessage:
            counts.bad += 1
            continue
        processor.activity_columns(columns, message_id)
        tables = activity_tables(columns, message_id)
        if batches.add(tables.batch, message):
            counts.batches += message.start_unix_nano >= time_range.start_unix_nano
            yield "activity", _within(tables.intervals, "start_time", time_range, tables.batch)
            yield "spans", _within(tables.spans, "start_time", time_range)
    for message in source.read(RAW, time_range, unit.partition):
        try:
            raw = decode_raw(message.value, source.limits.collected(message.timestamp_ms))
            outputs = processor.raw_columns(raw, _message_id(message, RAW))
        except BadMessage:
            counts.bad += 1
            continue
        for output in (sample_tables(decode_samples(data)) for data in outputs.samples):
            rows = _within(output.rows, "time", time_range, output.batch)
            counts.samples += rows.num_rows
            counts.batches += message.start_unix_nano >= time_range.start_unix_nano
            batches.add(output.batch, message)
            yield "samples", rows
            yield "series", series_table(output.series, output.last_unix_nano)
        for announced in (stack_tables(decode_stacks(data)) for data in outputs.stacks):
            yield "nodes", announced.nodes
            yield "locations", announced.locations


class _Batches:
    """The batches of a unit, each once, and from when to when their messages reach."""

    def __init__(self, block: str) -> None:
        self._block = block
        self._batches: dict[stored_batches.BatchKey, Batch] = {}
        self._reach: list[tuple[int, int]] = []

    def add(self, batch: Batch, message: Archived) -> bool:
        """Returns whether the batch is new."""
        if batch.key in self._batches:
            return False
        self._batches[batch.key] = batch
        self._reach.append((message.start_unix_nano, message.end_unix_nano))
        return True

    def table(self) -> pa.Table:
        """Returns rows for the staged `batches`."""
        reach = np.array(self._reach, np.int64).reshape(-1, 2)
        rows = stored_batches.table(list(self._batches.values()), self._block)
        return rows.append_column("from_unix_nano", pa.array(reach[:, 0])).append_column(
            "to_unix_nano", pa.array(reach[:, 1])
        )


def _message_id(message: Archived, topic: str) -> MessageId:
    return MessageId(message.cluster, topic, message.partition, message.offset)


def _within(rows: pa.Table, column: str, time_range: TimeRange, batch: Batch | None = None) -> pa.Table:
    """Returns the rows whose time is in the range. `batch`: that of the rows; mostly it tells that all are."""
    if batch is not None and (
        batch.first_time * 10**6 >= time_range.start_unix_nano
        and (batch.last_time + 1) * 10**6 <= time_range.end_unix_nano
    ):
        return rows
    kind = rows.schema.field(column).type
    unit_ns = {"ms": 10**6, "ns": 1}[kind.unit]
    start, end = (
        pa.scalar(-(-unix_nano // unit_ns), pa.int64()).cast(kind)
        for unix_nano in (time_range.start_unix_nano, time_range.end_unix_nano)
    )
    return rows.filter(pc.and_(pc.greater_equal(rows[column], start), pc.less(rows[column], end)))
