"""A time range through the operators of the stream processors once more, in-process, into staging tables.

All activity of a slice is given first, so that every sample finds its context: nothing is late, nothing is corrected.
"""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from clickhouse_connect.driver.client import Client

from icestream.topics import ACTIVITY, RAW
from jobs.source import Source
from sinks import stored_batches
from sinks.clickhouse import SETTINGS
from sinks.tables import activity, samples, stacks
from sinks.tables.arrow import BadMessage as NotStorable
from sinks.tables.arrow import together
from streams.decode import BadMessage
from streams.encode import MessageId
from streams.process import Operators, Processor
from streams.state import Limits

SLICE_NS = 600 * 10**9
TABLES = ("samples", "activity", "spans", "series", "nodes", "locations")
DELETE = {"lightweight_deletes_sync": 2}
"""A delete is done when it returns, on every replica."""
_INSERT_ROWS = 200_000


@dataclass
class Recomputed:
    """What a slice gave besides its rows."""

    batches: dict[stored_batches.BatchKey, stored_batches.Batch] = field(default_factory=dict)
    activity: list[tuple[stored_batches.Batch, int, int]] = field(default_factory=list)
    """Activity batches with their first and last moment, Unix nanoseconds."""
    samples: int = 0
    bad: int = 0
    """Messages that cannot be decoded."""


def insert_settings() -> dict[str, Any]:
    """Of an insert that is one of its own: jobs put back what was deleted, an equal block is not a repeat."""
    return SETTINGS | {"insert_deduplication_token": uuid.uuid4().hex}


def slices(from_unix_nano: int, to_unix_nano: int) -> Iterator[tuple[int, int]]:
    """The range cut at round ten minutes."""
    start = from_unix_nano
    while start < to_unix_nano:
        end = min((start // SLICE_NS + 1) * SLICE_NS, to_unix_nano)
        yield start, end
        start = end


def recompute(client: Client, source: Source, operators: Operators, start: int, end: int, staging: str) -> Recomputed:
    """Rows of [start, end) Unix nanoseconds to the tables `staging`NAME, which must be there."""
    done = Recomputed()
    waiting: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
    for name, rows in _rows(source, operators, start, end, done):
        waiting[name].append(rows)
        if sum(table.num_rows for table in waiting[name]) >= _INSERT_ROWS:
            _insert(client, staging + name, waiting[name])
            waiting[name] = []
    for name, tables in waiting.items():
        _insert(client, staging + name, tables)
    return done


def _rows(
    source: Source, operators: Operators, start: int, end: int, done: Recomputed
) -> Iterator[tuple[str, pa.Table]]:
    """(table, rows) of the slice."""
    processor = Processor(operators, Limits(complete=True))
    for message in source.read(ACTIVITY, start, end):
        message_id = MessageId(message.cluster, ACTIVITY, message.partition, message.offset)
        try:
            processor.activity(message.value, message_id)
            read = activity.decode(message.value, message.cluster, message.partition, message.offset)
        except (BadMessage, NotStorable):
            done.bad += 1
            continue
        if read.batch.key not in done.batches:
            done.batches[read.batch.key] = read.batch
            done.activity.append((read.batch, message.start_unix_nano, message.end_unix_nano))
            yield "activity", _within(read.intervals, "start_time", start, end)
            yield "spans", _within(read.spans, "start_time", start, end)
    for message in source.read(RAW, start, end):
        message_id = MessageId(message.cluster, RAW, message.partition, message.offset)
        try:
            outputs = processor.raw(message.value, message_id)
        except BadMessage:
            done.bad += 1
            continue
        for part in map(samples.decode, outputs.samples):
            done.batches[part.batch.key] = part.batch
            rows = _within(part.rows, "time", start, end)
            done.samples += rows.num_rows
            yield "samples", rows
            yield "series", samples.series_table(part.series, part.last_unix_nano)
        for announced in map(stacks.decode, outputs.stacks):
            yield "nodes", announced.nodes
            yield "locations", announced.locations


def _within(rows: pa.Table, column: str, start: int, end: int) -> pa.Table:
    kind = rows.schema.field(column).type
    per = {"ms": 10**6, "ns": 1}[kind.unit]
    low, high = (pa.scalar(-(-moment // per), pa.int64()).cast(kind) for moment in (start, end))
    return rows.filter(pc.and_(pc.greater_equal(rows[column], low), pc.less(rows[column], high)))


def _insert(client: Client, table: str, parts: Iterable[pa.Table]) -> None:
    parts = [part for part in parts if part.num_rows]
    if parts:
        client.insert_arrow(table, together(parts), settings=insert_settings())


def make_staging(client: Client, staging: str, tables: Iterable[str] = TABLES) -> None:
    """Empty tables like the live ones, where they are not there yet."""
    for name in tables:
        client.command(f"CREATE TABLE IF NOT EXISTS {staging}{name} AS {name}")


def drop_staging(client: Client, staging: str, tables: Iterable[str] = TABLES) -> None:
    for name in tables:
        client.command(f"DROP TABLE IF EXISTS {staging}{name} SYNC")


def add_announced(client: Client, staging: str) -> None:
    """Series, nodes, locations and spans that the live tables do not have, or not with these names."""
    for name, key in (("series", "series_id"), ("nodes", "node_id"), ("spans", "(trace_id, span_id)")):
        client.command(
            f"INSERT INTO {name} SELECT * FROM {staging}{name} FINAL WHERE {key} NOT IN (SELECT {key} FROM {name})",
            settings=insert_settings(),
        )
    client.command(
        f"INSERT INTO locations SELECT * FROM {staging}locations FINAL"
        " WHERE (location_id, version) NOT IN (SELECT location_id, version FROM locations)"
        " AND (version > 0 OR location_id NOT IN (SELECT location_id FROM locations))",
        settings=insert_settings(),
    )


def absent_batches(client: Client, done: Recomputed) -> list[stored_batches.Batch]:
    """Batches that are not remembered as stored."""
    known = stored_batches.find(client, done.batches)
    return [batch for key, batch in done.batches.items() if key not in known]


def add_batches(client: Client, batches: list[stored_batches.Batch], block: str) -> None:
    """Remembers batches as stored."""
    if batches:
        client.insert_arrow("batches", stored_batches.table(batches, block), settings=insert_settings())
