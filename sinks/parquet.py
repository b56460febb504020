"""The Parquet sink: samples, series, nodes, locations, activity and spans as Delta tables (delta.io) of one folder.

Delta's application transactions store each row once. A commit to a table carries the last offset of the partition that
was read, and the last output of each partition that the samples were made from. Messages up to those are skipped. So a
sink may start to read from anywhere, and a stream processor may send outputs twice.

Delta has no unsigned integers: IDs are the same 64 bits as int64, other unsigned columns are int64. `start_time` and
`end_time` of activity and spans are int64 nanoseconds since 1970. Tables with times are partitioned by `date`.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from icestream.messages.checks import Labels
from icestream.messages.plausible import ANY_LIMITS, TimeLimits
from icestream.topics import ACTIVITY, PARQUET_GROUP, SAMPLES, STACKS
from sinks import metrics
from sinks.ranges import MessageRange, message_id
from sinks.tables.activity import ActivityTables
from sinks.tables.arrow import concat
from sinks.tables.decode import Tables, decode
from sinks.tables.samples import SampleTables, series_table
from sinks.tables.stacks import StackTables

log = logging.getLogger(__name__)

COMPACT_S = 3600.0
KEEP_REMOVED_HOURS = 168
"""How long files are kept that compaction has replaced, for readers of older versions."""
_OUTPUT_BITS = 16
_DAY_NS = 86_400 * 10**9
_SERIES_KEPT = 200_000

Decoded = tuple[int, Tables]
"""Offset and content of a message."""


class ParquetSink:
    """Appends ranges to Delta tables. Used by one thread; several processes may append to the same tables."""

    name = "parquet"
    group = PARQUET_GROUP
    topics: tuple[str, ...] = (STACKS, SAMPLES, ACTIVITY)
    keeps_ranges = False

    def __init__(
        self, uri: str, storage_options: dict[str, str] | None = None, limits: TimeLimits = ANY_LIMITS
    ) -> None:
        self._limits = limits
        self._uri = uri.rstrip("/")
        self._options = storage_options
        self._series: dict[int, int] = {}
        self._compacted = time.monotonic()

    def check(self) -> None:
        """Does nothing: tables are made when the first rows come."""

    def decode(self, message: Message, cluster: str) -> Decoded:
        """Raises BadMessage."""
        tables = decode(message.value(), message_id(message, cluster), self._limits, message.timestamp()[1])
        return message.offset() or 0, tables

    def write(self, message_range: MessageRange[Decoded]) -> None:
        """Raises deltalake's errors and OSError; may then be called again with the same range."""
        messages = message_range.messages
        stacks = [(offset, m) for offset, m in messages if isinstance(m, StackTables)]
        samples = [(offset, m) for offset, m in messages if isinstance(m, SampleTables)]
        activity = [(offset, m) for offset, m in messages if isinstance(m, ActivityTables)]
        self._append("nodes", message_range, [(offset, m.nodes) for offset, m in stacks])
        self._append("locations", message_range, [(offset, m.locations) for offset, m in stacks])
        self._write_samples(message_range, samples)
        self._append("spans", message_range, [(offset, m.spans) for offset, m in activity])
        self._append("activity", message_range, [(offset, m.intervals) for offset, m in activity])

    def failed(self) -> None:
        """Does nothing: no connection is open."""

    def idle(self) -> None:
        """Joins small files once an hour."""
        if time.monotonic() - self._compacted < COMPACT_S:
            return
        self._compacted = time.monotonic()
        compact(self._uri, self._options)

    def close(self) -> None:
        """Does nothing: everything written is committed."""

    def _write_samples(
        self, message_range: MessageRange[Decoded], messages: Sequence[tuple[int, SampleTables]]
    ) -> None:
        new: dict[int, Labels] = {}
        for _, message in messages:
            day = message.last_unix_nano // _DAY_NS
            new |= {i: labels for i, labels in message.series.items() if self._series.get(i, -1) < day}
        last = max((message.last_unix_nano for _, message in messages), default=0)
        if new:
            # A series that comes twice is the same row twice; the offset in its commit is only that of this range.
            self._append("series", message_range, [(message_range.offsets.last, series_table(new, last))])
        last_outputs: dict[str, int] = {}
        table = self._table("samples")
        new_rows = []
        for offset, message in messages:
            batch = message.batch
            app = f"source/{batch.cluster}/{batch.topic}/{batch.partition}/{message_range.partition}"
            output = batch.offset << _OUTPUT_BITS | min(batch.output, (1 << _OUTPUT_BITS) - 1)
            if output <= last_outputs.get(app, self._version(table, app)):
                metrics.DUPLICATES.labels(self.name, message_range.topic).inc()
                continue
            last_outputs[app] = output
            new_rows.append((offset, message.rows))
        self._append("samples", message_range, new_rows, last_outputs, table)
        if len(self._series) + len(new) > _SERIES_KEPT:
            self._series.clear()
        self._series |= dict.fromkeys(new, last // _DAY_NS)

    def _append(
        self,
        name: str,
        message_range: MessageRange[Decoded],
        parts: Sequence[tuple[int, pa.Table]],
        last_outputs: dict[str, int] | None = None,
        table: DeltaTable | None = None,
    ) -> None:
        """Appends, in one commit, those parts whose offset is past the last one in the table for this partition."""
        if not parts:
            return
        table = table or self._table(name)
        app = f"topic/{message_range.cluster}/{message_range.topic}/{message_range.partition}"
        stored = self._version(table, app)
        rows = [part for offset, part in parts if offset > stored]
        data = to_delta(concat(rows)) if rows else None
        if data is None or not data.num_rows:
            return
        versions = (last_outputs or {}) | {app: message_range.offsets.last}
        write_deltalake(
            table if table is not None else f"{self._uri}/{name}",
            data,
            mode="append",
            schema_mode="merge",  # a table of an earlier version lacks columns
            partition_by=["date"] if "date" in data.column_names else None,
            storage_options=self._options,
            commit_properties=CommitProperties(
                app_transactions=[Transaction(app_id=app, version=version) for app, version in versions.items()]
            ),
        )
        metrics.ROWS.labels(self.name, name).inc(data.num_rows)

    def _table(self, name: str) -> DeltaTable | None:
        """Returns a new snapshot of a table; None where there is no table yet."""
        uri = f"{self._uri}/{name}"
        if not DeltaTable.is_deltatable(uri, self._options):
            return None
        return DeltaTable(uri, storage_options=self._options)

    def _version(self, table: DeltaTable | None, app: str) -> int:
        version = table.transaction_version(app) if table is not None else None
        return -1 if version is None else version


def compact(uri: str, storage_options: dict[str, str] | None = None) -> None:
    """Joins small files of all tables, and deletes files that were replaced a week ago."""
    for name in ("samples", "series", "nodes", "locations", "activity", "spans"):
        if DeltaTable.is_deltatable(f"{uri}/{name}", storage_options):
            table = DeltaTable(f"{uri}/{name}", storage_options=storage_options)
            done: dict[str, Any] = table.optimize.compact(target_size=128 << 20)
            table.vacuum(retention_hours=KEEP_REMOVED_HOURS, dry_run=False)
            table.create_checkpoint()
            table.cleanup_metadata()
            log.info("%s: %s files joined into %s", name, done["numFilesRemoved"], done["numFilesAdded"])


def to_delta(rows: pa.Table) -> pa.Table:
    """Returns the same rows in types that Delta has, with a `date` where they have a time."""
    columns = {}
    for field in rows.schema:
        column = rows.column(field.name)
        kind = field.type
        if pa.types.is_dictionary(kind):
            column = column.cast(kind.value_type)
        elif pa.types.is_fixed_size_binary(kind):
            column = column.cast(pa.binary())
        elif kind == pa.uint64():
            column = pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())
        elif kind in (pa.uint32(), pa.uint8()) or kind == pa.timestamp("ns", "UTC"):
            column = column.cast(pa.int64())
        elif pa.types.is_timestamp(kind):
            column = column.cast(pa.timestamp("us", "UTC"))
        columns[field.name] = column
    times = [name for name in ("time", "start_time") if name in rows.column_names]
    if times:
        columns["date"] = pc.cast(pc.floor_temporal(rows.column(times[0]), unit="day"), pa.date32())
    return pa.table(columns)
