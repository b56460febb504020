"""Recomputes a time range: reads its messages from a source, and runs them through the stream processors' operators.

It gives all activity of a slice to the operators first, so that every sample finds its trace context: nothing is late,
and there are no corrections.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from clickhouse_connect.driver.client import Client

from icestream.messages.activity import decode_activity
from icestream.messages.checks import BadMessage
from icestream.messages.message_id import MessageId
from icestream.messages.samples import decode_samples
from icestream.messages.stacks import decode_stacks
from icestream.topics import ACTIVITY, RAW
from jobs.sources import Source
from jobs.staging import TABLES, insert_settings
from jobs.time_range import TimeRange
from sinks.archive import Archived
from sinks.stored_batches import Batch, BatchKey
from sinks.tables.activity import activity_tables
from sinks.tables.arrow import concat
from sinks.tables.samples import sample_tables, series_table
from sinks.tables.stacks import stack_tables
from streams.process import Operators, Processor
from streams.retained import Limits

_INSERT_ROWS = 200_000


@dataclass(frozen=True)
class ActivityRange:
    """An activity batch, and the time from its first start to its last end."""

    batch: Batch
    start_unix_nano: int
    end_unix_nano: int


@dataclass
class Recomputed:
    """What a slice gave besides its rows."""

    batches: dict[BatchKey, Batch] = field(default_factory=dict)
    activity: list[ActivityRange] = field(default_factory=list)
    samples: int = 0
    bad: int = 0
    """Messages that cannot be decoded."""


def recompute(client: Client, source: Source, operators: Operators, time_range: TimeRange, staging: str) -> Recomputed:
    """Inserts the rows of the range into the tables `staging`NAME, which must exist. Raises SourceError and OSError."""
    recomputed = Recomputed()
    waiting: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
    for name, rows in _rows(source, operators, time_range, recomputed):
        waiting[name].append(rows)
        if sum(table.num_rows for table in waiting[name]) >= _INSERT_ROWS:
            _insert(client, staging + name, waiting[name])
            waiting[name] = []
    for name, tables in waiting.items():
        _insert(client, staging + name, tables)
    return recomputed


def _rows(
    source: Source, operators: Operators, time_range: TimeRange, recomputed: Recomputed
) -> Iterator[tuple[str, pa.Table]]:
    """Yields (table, rows), and adds everything else to `recomputed`."""
    processor = Processor(operators, Limits(complete=True))
    for message in source.read(ACTIVITY, time_range):
        message_id = _message_id(message, ACTIVITY)
        try:
            columns = decode_activity(message.value)
        except BadMessage:
            recomputed.bad += 1
            continue
        processor.activity_columns(columns, message_id)
        tables = activity_tables(columns, message_id)
        if tables.batch.key not in recomputed.batches:
            recomputed.batches[tables.batch.key] = tables.batch
            recomputed.activity.append(ActivityRange(tables.batch, message.start_unix_nano, message.end_unix_nano))
            yield "activity", _within(tables.intervals, "start_time", time_range)
            yield "spans", _within(tables.spans, "start_time", time_range)
    for message in source.read(RAW, time_range):
        try:
            outputs = processor.raw(message.value, _message_id(message, RAW))
        except BadMessage:
            recomputed.bad += 1
            continue
        for output in (sample_tables(decode_samples(data)) for data in outputs.samples):
            recomputed.batches[output.batch.key] = output.batch
            rows = _within(output.rows, "time", time_range)
            recomputed.samples += rows.num_rows
            yield "samples", rows
            yield "series", series_table(output.series, output.last_unix_nano)
        for announced in (stack_tables(decode_stacks(data)) for data in outputs.stacks):
            yield "nodes", announced.nodes
            yield "locations", announced.locations


def _message_id(message: Archived, topic: str) -> MessageId:
    return MessageId(message.cluster, topic, message.partition, message.offset)


def _within(rows: pa.Table, column: str, time_range: TimeRange) -> pa.Table:
    """Returns the rows whose time is in the range."""
    kind = rows.schema.field(column).type
    unit_ns = {"ms": 10**6, "ns": 1}[kind.unit]
    start, end = (
        pa.scalar(-(-unix_nano // unit_ns), pa.int64()).cast(kind)
        for unix_nano in (time_range.start_unix_nano, time_range.end_unix_nano)
    )
    return rows.filter(pc.and_(pc.greater_equal(rows[column], start), pc.less(rows[column], end)))


def _insert(client: Client, table: str, parts: Iterable[pa.Table]) -> None:
    parts = [part for part in parts if part.num_rows]
    if parts:
        client.insert_arrow(table, concat(parts), settings=insert_settings())
