"""The Parquet sink: samples, series, nodes, locations, activity and spans as Delta tables (delta.io) of one folder.

Exactly once by Delta's application transactions: a commit to a table carries, for the partition of Kafka it read from,
the last offset, and for each partition that its samples come from, the last of those; messages at or below them are
skipped. So it does not matter where a sink starts to read again, or what a stream processor sends twice.

Delta knows no unsigned integers: IDs are the same 64 bits as int64, other unsigned columns are int64. `start` and `end`
of activity are int64 nanoseconds since 1970; `date` is what tables with times are partitioned by.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from icestream.topics import ACTIVITY, PARQUET_GROUP, SAMPLES, STACKS
from sinks import metrics
from sinks.ranges import Range
from sinks.tables import activity, samples, stacks
from sinks.tables.arrow import together

log = logging.getLogger(__name__)

COMPACT_S = 3600.0
KEEP_REMOVED_HOURS = 168
"""Files that compaction replaced are kept that long, for readers of older versions."""
_OUTPUT_BITS = 16
_SERIES_KEPT = 200_000

Decoded = tuple[int, samples.Samples | stacks.Stacks | activity.Activity]
"""Offset and content of a message."""


class ParquetSink:
    """Appends ranges to Delta tables. Used by one thread; several processes may append to the same tables."""

    name = "parquet"
    group = PARQUET_GROUP
    topics: tuple[str, ...] = (STACKS, SAMPLES, ACTIVITY)
    keeps_ranges = False

    def __init__(self, uri: str, storage_options: dict[str, str] | None = None) -> None:
        self._uri = uri.rstrip("/")
        self._options = storage_options
        self._series: dict[int, int] = {}
        self._compacted = time.monotonic()

    def check(self) -> None:
        """Tables are made when the first rows come."""

    def decode(self, message: Message, cluster: str) -> Decoded:
        """Raises BadMessage."""
        topic, data, offset = message.topic(), message.value(), message.offset() or 0
        if topic == SAMPLES:
            return offset, samples.decode(data)
        if topic == STACKS:
            return offset, stacks.decode(data)
        return offset, activity.decode(data, cluster, message.partition() or 0, offset)

    def write(self, message_range: Range[Decoded]) -> None:
        """Raises deltalake's errors and OSError; may then be called again with the same range."""
        found = [(offset, m) for offset, m in message_range.messages if isinstance(m, stacks.Stacks)]
        self._append("nodes", message_range, [(offset, m.nodes) for offset, m in found])
        self._append("locations", message_range, [(offset, m.locations) for offset, m in found])
        self._write_samples(
            message_range, [(offset, m) for offset, m in message_range.messages if isinstance(m, samples.Samples)]
        )
        intervals = [(offset, m) for offset, m in message_range.messages if isinstance(m, activity.Activity)]
        self._append("spans", message_range, [(offset, m.spans) for offset, m in intervals])
        self._append("activity", message_range, [(offset, m.intervals) for offset, m in intervals])

    def failed(self) -> None:
        """Nothing is open."""

    def idle(self) -> None:
        """Joins small files, once an hour."""
        if time.monotonic() - self._compacted < COMPACT_S:
            return
        self._compacted = time.monotonic()
        compact(self._uri, self._options)

    def close(self) -> None:
        """Everything written is committed."""

    def _write_samples(self, message_range: Range[Decoded], messages: Sequence[tuple[int, samples.Samples]]) -> None:
        new: dict[int, dict[str, str]] = {}
        for _, message in messages:
            day = message.last_unix_nano // (86_400 * 10**9)
            new |= {i: labels for i, labels in message.series.items() if self._series.get(i, -1) < day}
        last = max((message.last_unix_nano for _, message in messages), default=0)
        if new:
            # A series twice is the same row twice; the offset in its commit is only that of this range.
            self._append("series", message_range, [(message_range.offsets.last, samples.series_table(new, last))])
        high: dict[str, int] = {}
        table = self._table("samples")
        fresh = []
        for offset, message in messages:
            batch = message.batch
            app = f"source/{batch.cluster}/{batch.topic}/{batch.partition}/{message_range.partition}"
            mark = max(batch.offset, 0) << _OUTPUT_BITS | min(batch.output, (1 << _OUTPUT_BITS) - 1)
            if mark <= high.get(app, self._version(table, app)):
                metrics.DUPLICATES.labels(self.name, message_range.topic).inc()
                continue
            high[app] = mark
            fresh.append((offset, message.rows))
        self._append("samples", message_range, fresh, high, table)
        if len(self._series) + len(new) > _SERIES_KEPT:
            self._series.clear()
        self._series |= dict.fromkeys(new, last // (86_400 * 10**9))

    def _append(
        self,
        name: str,
        message_range: Range[Decoded],
        parts: Sequence[tuple[int, pa.Table]],
        marks: dict[str, int] | None = None,
        table: DeltaTable | None = None,
    ) -> None:
        """Appends those parts whose offset is past what the table has of this partition, in one commit."""
        if not parts:
            return
        table = table or self._table(name)
        app = f"topic/{message_range.cluster}/{message_range.topic}/{message_range.partition}"
        stored = self._version(table, app)
        rows = [part for offset, part in parts if offset > stored]
        data = to_delta(together(rows)) if rows else None
        if data is None or not data.num_rows:
            return
        versions = (marks or {}) | {app: message_range.offsets.last}
        write_deltalake(
            table if table is not None else f"{self._uri}/{name}",
            data,
            mode="append",
            partition_by=["date"] if "date" in data.column_names else None,
            storage_options=self._options,
            commit_properties=CommitProperties(
                app_transactions=[Transaction(app_id=app, version=version) for app, version in versions.items()]
            ),
        )
        metrics.ROWS.labels(self.name, name).inc(data.num_rows)

    def _table(self, name: str) -> DeltaTable | None:
        """A fresh snapshot, None where there is no table yet."""
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
    """The same rows in types that Delta has, with a `date` where they have a time of their own."""
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
