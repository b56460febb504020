"""The lake sink: samples, activity, spans, nodes, locations, series and batches as Delta tables of one folder.

docs/lake.md describes the tables. Each batch is stored once, as in ClickHouse:
- A batch that is in the table `batches` is not stored again, whoever sent it a second time and from whichever offset.
- The ranges of all partitions that are due are appended together: one commit for each table, which says what ranges it
  has (see sinks/runner/range_commits.py). `batches` comes last. So ranges that were in flight when a sink died are
  completed by the next attempts, each by the owner of its partition: it leaves out what the tables have of its range.
  Delta refuses a commit to a table that got another range of one of the partitions since the table was opened. So a
  sink that was frozen, and has lost its partitions, stores nothing twice.

A node, location or series is stored once a month, and sometimes twice: readers must expect that.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date, datetime, timezone

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

from icestream.columns import sorted_keys
from icestream.columns.recent_ids import RecentIds
from icestream.labels.request_labels import NO_LABELS, RequestLabels
from icestream.messages.plausible import ANY_LIMITS, TimeLimits
from icestream.names_api import NamesApi
from icestream.topics import ACTIVITY, LAKE_GROUP, SAMPLES, STACKS
from sinks import metrics
from sinks.clickhouse import stored_batches
from sinks.clickhouse.stored_batches import ALL_OUTPUTS, Batch, BatchKey
from sinks.lake.delta import Lake, column_of_days, drop_in_delta, to_delta
from sinks.lake.late_names import answered, read_stored_names
from sinks.lake.upkeep import compact, delete_old_days
from sinks.runner.kafka_clock import Now
from sinks.runner.range_commits import RangeRows, blocks, commits, done_before
from sinks.runner.ranges import MessageRange, message_id
from sinks.runner.try_out import rows_of
from sinks.tables.activity import ActivityTables
from sinks.tables.arrow import concat
from sinks.tables.decode import Tables, decode
from sinks.tables.samples import SampleTables, series_table
from sinks.tables.stacks import StackTables

log = logging.getLogger(__name__)

Stored = SampleTables | ActivityTables
_COMPACT_S = 60.0
_RETAIN_S = 86_400.0
_RETRY_S = 600.0
_HOUR_MS = 3_600_000
_FIRST_NAMES_S, _NAMES_S = 10.0, 3600.0
"""When the sink looks for names that the lake lacks: so long after it has begun to write samples, when it has mostly
read what the topic has of their names; then after pauses that double, up to an hour."""
_REMEMBERED = 2_000_000
"""How many nodes, locations and series are remembered as written, 8 bytes each; others are written again."""
_TABLES: dict[str, Callable[[Stored], pa.Table | None]] = {
    "samples": lambda m: m.rows if isinstance(m, SampleTables) else None,
    "spans": lambda m: m.spans if isinstance(m, ActivityTables) else None,
    "activity": lambda m: m.intervals if isinstance(m, ActivityTables) else None,
}
"""The tables that `batches` speaks of, and their rows of a message."""
_ID_COLUMNS = {"nodes": "node_id", "locations": "location_id", "series": "series_id"}
_ODD = np.uint64(0x9E3779B97F4A7C15)


class LakeSink:
    """Writes ranges of messages; see the module. Used by one thread; several processes may write the same tables."""

    name = "lake"
    group = LAKE_GROUP
    topics: tuple[str, ...] = (STACKS, SAMPLES, ACTIVITY)
    keeps_ranges = True
    writes_together = True

    def __init__(
        self,
        uri: str,
        storage_options: dict[str, str] | None = None,
        limits: TimeLimits = ANY_LIMITS,
        keep_days: int = 0,
        now: Now = time.time,
        names: NamesApi | None = None,
        sets: RequestLabels = NO_LABELS,
    ) -> None:
        """`keep_days`: days that are kept; 0: all. `names`: is asked for names that Kafka has deleted; `sets`: of
        samples."""
        self._limits, self._sets = limits, sets
        self._keep_days = keep_days
        self._now = now
        self._lake = Lake(uri, storage_options)
        self._remembered: dict[str, RecentIds] = {}
        self._compacted = time.monotonic()
        self._retained = float("-inf")
        self._names = names
        self._unnamed = np.empty(0, np.int64)  # stacks of samples that may lack names
        self._unnamed_since: date | None = None  # the first day of their samples
        self._names_pause_s = _FIRST_NAMES_S
        self._names_from = float("inf")

    def check(self) -> None:
        """Raises deltalake's errors and OSError where the folder cannot be read."""
        self._lake.open("batches")

    def decode(self, message: Message, cluster: str) -> Tables:
        """Returns tables in Delta's types: what decodes can be stored. Raises BadMessage or ValueError."""
        tables = decode(message.value(), message_id(message, cluster), self._limits, message.timestamp()[1], self._sets)
        return in_delta_types(tables)

    def write(self, *ranges: MessageRange[Tables]) -> None:
        """Raises deltalake's errors and OSError; may then be called again with some of the ranges."""
        messages = [message for message_range in ranges for message in message_range.messages]
        if self._remembered and self._lake.open("batches") is None:  # the lake was deleted
            self._remembered.clear()
        if stacks := [m for m in messages if isinstance(m, StackTables)]:
            self._append_unwritten("nodes", [m.nodes for m in stacks])
            self._append_unwritten("locations", [m.locations for m in stacks])
        if samples := [m for m in messages if isinstance(m, SampleTables)]:
            self._append_unwritten(
                "series", [to_delta("series", series_table(m.series, m.last_unix_nano)) for m in samples]
            )
        for group in _without_common_batches(ranges):
            self._append_new(group)
        if self._names is not None and samples:
            self._note_stacks(samples)

    def try_out(self, messages: Sequence[Tables], empty: bool) -> None:
        """See Sink. Raises deltalake's errors."""
        for name, rows in rows_of(messages):
            in_delta = rows if name not in ("series", "batches") else to_delta(name, rows)
            for block in [in_delta.slice(0, 0)] if empty else blocks(in_delta, column_of_days(name)):
                drop_in_delta(name, block)

    def failed(self) -> None:
        """Opens all tables again before the next attempt."""
        self._lake.forget()

    def idle(self) -> None:
        """Joins small files, deletes old days and files once a day, and fills in names that Kafka has deleted."""
        begun = time.monotonic()
        if begun - self._retained > _RETAIN_S and (now := self._now()) is not None:
            self._retained = begun - _RETAIN_S + _RETRY_S  # if it fails
            delete_old_days(self._lake, self._keep_days, datetime.fromtimestamp(now, timezone.utc).date())
            self._retained = begun
        if begun - self._compacted > _COMPACT_S:
            self._compacted = begun
            compact(self._lake)
        if begun >= self._names_from:
            self._names_pause_s = min(2 * self._names_pause_s, _NAMES_S)
            self._names_from = begun + self._names_pause_s
            self._fill_names()

    def close(self) -> None:
        """Does nothing: everything written is committed."""

    def _note_stacks(self, samples: Sequence[SampleTables]) -> None:
        rows = concat([m.rows.select(["stack_id", "date"]) for m in samples])
        stack_ids = rows["stack_id"].to_numpy()
        self._unnamed = sorted_keys.distinct(np.concatenate([self._unnamed, stack_ids[stack_ids != 0]]))
        days = [pc.min(rows["date"]).as_py(), self._unnamed_since]
        self._unnamed_since = min((day for day in days if day), default=None)
        if self._names_from == float("inf"):
            self._names_from = time.monotonic() + self._names_pause_s

    def _fill_names(self) -> None:
        """Asks the API for the names of written samples that the lake lacks. Those that it does not answer with are
        asked for the next time."""
        if self._names is None or not len(self._unnamed):
            return
        lacking = read_stored_names(self._lake, self._unnamed_since).lacking(self._unnamed)
        nodes, locations = answered(self._names.try_to_ask(lacking.view(np.uint64).tolist()))
        if nodes:
            self._append_unwritten("nodes", nodes)
            self._append_unwritten("locations", locations)
            still = read_stored_names(self._lake, self._unnamed_since).lacking(lacking)
            metrics.STACKS_NAMED.inc(len(lacking) - len(still))
            lacking = still
        metrics.STACKS_UNNAMED.set(len(lacking))
        if len(lacking):
            log.warning(
                "lake: of %d stacks whose samples were written lately, %d have no names, or not all: neither Kafka nor "
                "the API has them; later, icestream lake fill-names may find them",
                len(self._unnamed),
                len(lacking),
            )
        self._unnamed = lacking
        if not len(lacking):
            self._unnamed_since = None

    def _append_new(self, ranges: Sequence[MessageRange[Tables]]) -> None:
        """Appends the messages whose batches are not stored: to their tables, and then to `batches`."""
        # The tables are opened before `batches` is asked. What another process stores after that makes commits fail.
        done = {
            name: done_before(self._lake.open(name), having)
            for name, rows_of_table in _TABLES.items()
            if (having := [r for r in ranges if _rows(rows_of_table, _stored_in(r))])
        }
        stored = self._stored([m.batch for r in ranges for m in _stored_in(r)])
        new = [(r, self._new(r, stored)) for r in ranges]
        for name, rows_of_table in _TABLES.items():
            parts = [RangeRows(r, concat(rows)) for r, messages in new if (rows := _rows(rows_of_table, messages))]
            self._append(name, parts, done.get(name, {}))
        batches = [
            RangeRows(r, to_delta("batches", stored_batches.table([m.batch for m in messages], r.name)))
            for r, messages in new
            if messages
        ]
        self._append("batches", batches, {})

    def _new(self, message_range: MessageRange[Tables], stored: set[BatchKey]) -> list[Stored]:
        """Returns the messages of a range whose batches are not stored, each once."""
        messages = _stored_in(message_range)
        new: dict[BatchKey, Stored] = {}
        for message in messages:
            if message.batch.key not in stored:
                new.setdefault(message.batch.key, message)
        if len(messages) > len(new):
            metrics.DUPLICATES.labels(self.name, message_range.topic).inc(len(messages) - len(new))
        return list(new.values())

    def _stored(self, batches: Sequence[Batch]) -> set[BatchKey]:
        """Returns the keys of the batches that are stored."""
        table = self._lake.open("batches")
        if table is None or not batches:
            return set()
        # A batch that comes again has the same times; corrections of one differ by minutes at most.
        hours = sorted({b.first_time // _HOUR_MS + i for b in batches for i in (-1, 0, 1)})
        day = pa.timestamp("ms", "UTC")
        dates = sorted({datetime.fromtimestamp(hour * 3600, timezone.utc).date() for hour in hours})
        rows = table.to_pyarrow_dataset(file_pruning_predicate=[("date", "in", [str(date) for date in dates])])
        found = rows.to_table(
            columns=list(BatchKey._fields),
            filter=(pc.field("first_time") >= pa.scalar(hours[0] * _HOUR_MS, day).cast(pa.timestamp("us", "UTC")))
            & (pc.field("first_time") < pa.scalar((hours[-1] + 1) * _HOUR_MS, day).cast(pa.timestamp("us", "UTC")))
            & pc.field("sequence").isin(sorted({b.sequence for b in batches}))
            & pc.field("collector").isin(sorted({b.collector for b in batches})),
        )
        keys = {BatchKey(**row) for row in found.to_pylist()}
        return {b.key for b in batches if b.key in keys or b.key._replace(output=ALL_OUTPUTS) in keys}

    def _append_unwritten(self, name: str, parts: list[pa.Table]) -> None:
        """Appends the rows of nodes, locations or series that were not written this month."""
        rows = concat(parts)
        remembered = self._remembered.get(name)
        if remembered is None:
            remembered = self._remembered[name] = self._written(name, rows)
        keys, first = np.unique(_keys(name, rows), return_index=True)
        new = ~remembered.contains(keys)
        if new.any():
            self._lake.open(name)
            for block in blocks(rows.take(pa.array(np.sort(first[new]))), column_of_days(name)):
                self._lake.append(name, block)
            metrics.ROWS.labels(self.name, name).inc(int(new.sum()))
        remembered.add(keys[new])

    def _written(self, name: str, rows: pa.Table) -> RecentIds:
        """Returns what the table has of the months of these rows, as far as it can be remembered."""
        remembered = RecentIds(_REMEMBERED)
        table = self._lake.open(name)
        if table is not None:
            months = [str(month) for month in pc.unique(rows.column("month")).to_pylist()]
            columns = [_ID_COLUMNS[name], "month", *(["version"] if name == "locations" else [])]
            dataset = table.to_pyarrow_dataset(file_pruning_predicate=[("month", "in", months)])
            for batch in dataset.to_batches(columns=columns):
                keys = _keys(name, pa.table(batch))
                remembered.add(keys[~remembered.contains(keys)])
        return remembered

    def _append(self, name: str, parts: Sequence[RangeRows], done: dict[str, int]) -> None:
        for commit in commits(parts, column_of_days(name), done):
            self._lake.append(name, commit.rows, commit.transactions)
            metrics.ROWS.labels(self.name, name).inc(commit.rows.num_rows)


def in_delta_types(tables: Tables) -> Tables:
    """Raises ValueError."""
    if isinstance(tables, StackTables):
        nodes, locations = to_delta("nodes", tables.nodes), to_delta("locations", tables.locations)
        return replace(tables, nodes=nodes, locations=locations)
    if isinstance(tables, SampleTables):
        return replace(tables, rows=to_delta("samples", tables.rows))
    intervals, spans = to_delta("activity", tables.intervals), to_delta("spans", tables.spans)
    return replace(tables, intervals=intervals, spans=spans)


def _without_common_batches(ranges: Iterable[MessageRange[Tables]]) -> list[list[MessageRange[Tables]]]:
    """Returns the ranges in groups in which each batch is in one range only, as an owner of one of them will see it."""
    groups: list[tuple[list[MessageRange[Tables]], set[BatchKey]]] = []
    for message_range in ranges:
        keys = {message.batch.key for message in _stored_in(message_range)}
        if not keys:
            continue
        if not groups or not groups[-1][1].isdisjoint(keys):
            groups.append(([], set()))
        groups[-1][0].append(message_range)
        groups[-1][1].update(keys)
    return [group for group, _ in groups]


def _stored_in(message_range: MessageRange[Tables]) -> list[Stored]:
    return [message for message in message_range.messages if not isinstance(message, StackTables)]


def _rows(rows_of: Callable[[Stored], pa.Table | None], messages: Sequence[Stored]) -> list[pa.Table]:
    return [rows for message in messages if (rows := rows_of(message)) is not None and rows.num_rows]


def _keys(name: str, rows: pa.Table) -> np.ndarray:
    """Returns what each row is remembered by, uint64 (n,): its ID, its month, and the version of its lines."""
    keys: np.ndarray = rows.column(_ID_COLUMNS[name]).to_numpy().view(np.uint64)
    keys = keys + rows.column("month").cast(pa.int32()).to_numpy().astype(np.uint64) * _ODD
    if name == "locations":
        keys = keys ^ rows.column("version").to_numpy().view(np.uint64) * (_ODD + np.uint64(2))
    return keys
