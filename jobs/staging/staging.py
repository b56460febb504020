"""Staging tables: tables with the columns of the live ones, in which a job collects what it recomputed of one slice.

They are not replicated, and only `spans` is sorted: the server that the job is connected to appends to them, and reads
them once. StripeLog keeps a table in two files, so that it is quickly made and dropped. Log can leave columns as they
are: most of what it takes to insert a row is to compress it. Nothing is inserted into a table that is a file of the job
(jobs/staging/staged_file.py).

On a cluster, no other server has them. So a subquery of them runs once (GLOBAL), and a DELETE names the rows by a hash
of what decides about a row: its host, minute and batch. Each shard and each replica comes to the same result then.
"""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from icestream.clickhouse.thinning import THINNED_DAYS
from jobs.job import JobError
from jobs.locks.fence import Fence
from jobs.staging import staged_file
from jobs.staging.staged_file import StagedFile
from jobs.time_range import HostMinute, JobTimeRange, within
from sinks.clickhouse.change_tables import change_tables
from sinks.clickhouse.cluster import (
    DICTIONARIES,
    ON_EVERY_HOST,
    ONE_SERVER,
    Cluster,
    delete_from,
    identifier,
    wait_for_replicas,
)
from sinks.clickhouse.damaged_parts import whole_parts
from sinks.clickhouse.sink import SETTINGS
from sinks.rollups import changes

TABLES = ("samples", "activity", "spans", "series", "nodes", "locations", "batches")
"""The tables that hold what operators compute. A view fills `trace_samples` from `samples`."""
TIMES = {"trace_samples": "time", "samples": "time", "activity": "start_time"}
"""The tables whose rows a job replaces, in the order in which it deletes them -> their time."""
DELETE: dict[str, Any] = {"lightweight_deletes_sync": 2} | ON_EVERY_HOST
"""Settings with which a DELETE returns when every replica has executed it."""
MAX_HASHES = 10_000
"""Hashes in one DELETE: about 210 kB. ClickHouse takes statements of 256 KiB, and ZooKeeper nodes of 1 MB."""
_DEFINITIONS = {
    "batches": "ENGINE = StripeLog"
    " AS SELECT * EXCEPT stored_time, toInt64(0) AS from_unix_nano, toInt64(0) AS to_unix_nano FROM batches LIMIT 0",
    # As the live table: a span that was reported several times is the last one.
    # Without the live table's codecs: IDs are random, and are read once.
    "spans": "ENGINE = ReplacingMergeTree ORDER BY (trace_id, span_id) AS SELECT * FROM spans LIMIT 0",
}
"""The definitions of the staging tables that are not only the columns of the live one."""
_LARGE = ("samples", "activity")
"""The tables with most rows, which are files of the job, or of the engine Log."""
_UNCOMPRESSED = frozenset(
    ("trace_id", "span_id", "entry_span_id", "stack_id", "time", "start_time", "duration_ns", "thread_cpu_ns")
)
"""Their columns whose values differ from row to row: to compress them takes longer than to write and read them."""
_COLUMNS = (
    "SELECT name, type FROM system.columns"
    " WHERE database = currentDatabase() AND table = {table:String} AND default_kind = '' ORDER BY position"
)
"""Leaves out columns with a default: the owner of the tables may have added some, and the live table computes them."""
_TABLES_AT_ONCE = 500
"""Tables in one DROP: 100 kB with the longest names."""
NAME_PATTERN = r"^job_.+__([0-9a-f]{8})_[0-9]+_[a-z0-9_]+$"
"""The names of staging tables of all jobs, see `Staging.table`; the group is the beginning of the owner of the lock."""
BATCHES = "batches (* EXCEPT stored_time)"
"""What to insert rows of batches into, which are stored just then."""
BatchName = tuple[str, str, int, int, int]
"""Kind, collector, start of the collector, sequence and part of a batch."""
_KEY = "kind, collector, started_unix_nano, sequence, part, output"


def insert_settings(cluster: Cluster = ONE_SERVER) -> dict[str, Any]:
    """Returns the settings of an insert with a token of its own.

    A job inserts rows again that were deleted; without the token ClickHouse would drop the block as a repetition.
    """
    on_cluster = {"parallel_distributed_insert_select": 0} if cluster.name else {}
    return SETTINGS | changes.insert_settings(cluster) | on_cluster


@dataclass(frozen=True)
class Staging:
    """The staging tables of one slice of a job."""

    client: Client
    name: str
    """The job's."""
    time_range: JobTimeRange
    """A range within one day."""
    fence: Fence
    _made: list[str] = field(default_factory=list)
    _filled: dict[str, list[str]] = field(default_factory=dict)
    _files: dict[str, StagedFile] = field(default_factory=dict)

    def table(self, name: str) -> str:
        """Returns the name of a staging table: no other run of the job has it."""
        return f"{prefix(self.name)}{self.fence.owner[:8]}_{self.time_range.start_unix_nano // 10**6}_{name}"

    def make(self) -> None:
        """Makes the tables, empty. `batches` also tells from when to when the message reaches."""
        for name in TABLES:
            self._make_table(name, name)

    @contextmanager
    def copy(self, name: str, portions: Iterable[pa.Table]) -> Iterator[str]:
        """A table with the columns of the staged one of this name, and rows of another store; yields its name."""
        copy = f"copy_of_{name}"
        self._make_table(copy, name)
        try:
            for rows in portions:
                self.insert(copy, rows)
            yield self.table(copy)
        finally:
            self._drop(copy)

    def _make_table(self, name: str, like: str) -> None:
        self._make(self.table(name), self._definition(like))
        if like in _LARGE and staged_file.has_files_of(self.client):
            self._files[name] = StagedFile(self.client, self.table(name))

    def _definition(self, name: str) -> str:
        if name not in _LARGE:
            return _DEFINITIONS.get(name, f"AS {name} ENGINE = StripeLog")
        columns = (
            f"{identifier(column)} {kind}{' CODEC(NONE)' * (column in _UNCOMPRESSED)}"
            for column, kind in self._columns(name)
        )
        engine = staged_file.ENGINE if staged_file.has_files_of(self.client) else "Log"
        return f"({', '.join(columns)}) ENGINE = {engine}"

    def _columns(self, table: str) -> list[tuple[str, str]]:
        """Returns names and types of the columns of a table that have no default."""
        rows = self.client.query(_COLUMNS, parameters={"table": table}).result_rows
        return [(str(name), str(kind)) for name, kind in rows]

    def _make(self, table: str, definition: str) -> None:
        with whole_parts(self.client):  # of a query, too
            change_tables(self.client, f"CREATE TABLE {table} {definition}", DICTIONARIES)
        self._made.append(table)

    def filled(self, name: str) -> list[str]:
        """Returns the columns of the rows that were inserted; none: there are no rows."""
        return self._filled.get(name, [])

    def insert(self, name: str, rows: pa.Table) -> None:
        self._filled[name] = rows.column_names
        if name in self._files:
            self._files[name].append(rows)
        else:
            with whole_parts(self.client):
                self.client.insert_arrow(self.table(name), rows, settings=insert_settings())

    def thinned_days(self) -> set[str]:
        """Returns the slice's day if its requests are final (sinks/requests/thin_requests.py), or nothing."""
        (day,) = self.time_range.days()
        return {str(day)} if self.count(f"({THINNED_DAYS})", f"day = '{day}'") else set()

    def refuse_thinned(self) -> None:
        """Raises JobError if the day has been thinned since the job asked. Call it when a change of requests is noted,
        and before they change: nobody begins to thin the day then."""
        if self.thinned_days():
            raise JobError("a day was thinned meanwhile: start the job again, and it leaves its requests alone")

    @property
    def globally(self) -> str:
        """What stands before IN where the left side may be in a table of several shards, and the right side is not."""
        return "GLOBAL " if self.fence.cluster.local else ""

    def wait_for_replicas(self) -> None:
        """Waits until what is compared is complete on the replicas that may answer."""
        wait_for_replicas(self.client, self.fence.cluster, *TIMES, "spans", "batches")

    def rows(self, name: str, time_range: JobTimeRange) -> pa.Table:
        """Returns the rows of samples, activity or spans of a part of the slice."""
        column = "time" if name == "samples" else "start_time"
        table = self.spans if name == "spans" else self.table(name)
        return self.client.query_arrow(
            f"SELECT * FROM {table} WHERE {within(column)}",
            parameters=time_range.parameters,
            use_strings=True,
        )

    def batches(self, condition: str = "1") -> pa.Table:
        """Returns the rows of `batches`."""
        query = f"SELECT * EXCEPT (from_unix_nano, to_unix_nano) FROM {self.table('batches')} WHERE {condition}"
        return self.client.query_arrow(query, use_strings=True)

    def drop(self) -> None:
        """Drops the tables."""
        for name in list(self._files):
            self._close(name)
        drop_tables(self.client, self._made)
        self._made.clear()

    def _drop(self, name: str) -> None:
        self._close(name)
        drop_tables(self.client, [self.table(name)])
        self._made.remove(self.table(name))

    def _close(self, name: str) -> None:
        with suppress(OSError, KeyError):  # where the disk is full, to drop the table is what helps
            self._files.pop(name).close()

    def fill_minutes(self, minutes: Iterable[HostMinute]) -> str:
        """Makes a table of minutes of hosts, and returns its name."""
        return self.make_list(minutes, host="String", minute="Int64")

    def make_list(self, rows: Iterable[tuple[Any, ...]], **columns: str) -> str:
        """Makes a table of these rows, and returns its name, which no other list has."""
        table = self.table(f"list_{uuid.uuid4().hex[:8]}")
        types = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        self._make(table, f"({types}) ENGINE = Memory")
        data = [list(row) for row in rows]
        self.client.insert(table, data, column_names=list(columns), settings=insert_settings())
        return table

    def of_recomputed_batches(self, table: str) -> str:
        """Returns the SQL condition that a row of a live table comes from a batch that was recomputed.

        A recomputed sample has its trace, so the corrections by recomputed activity are among the rows to replace.
        """
        kinds = "kind" if table == "activity" else "if(kind = 'activity', 'corrections', kind)"
        run = f"concat({kinds}, '/', collector, '/', toString(started_unix_nano), '/', toString(part))"
        return f"(batch_run, batch_sequence) {self.globally}IN (SELECT {run}, sequence FROM {self.table('batches')})"

    def change(self, sql: str, condition: str, more: dict[str, Any] | None = None, **settings: Any) -> None:
        """Runs a statement that changes a live table, with WHERE and this condition, if the job still has its lock.

        `more`: query parameters besides those of `within`.
        """
        with whole_parts(self.client):
            self.client.command(
                f"{sql} WHERE {self.fence.condition} AND ({condition})",
                parameters=self.time_range.parameters | (more or {}),
                settings=(settings or insert_settings(self.fence.cluster)) | self.fence.settings,
            )

    def replace(self, tables: tuple[str, ...], condition: str = "1") -> None:
        """Replaces the rows of recomputed batches in these live tables, and in the slice, by the staged ones.

        `condition` restricts it further. The view fills `trace_samples`. Raises JobError for activity of a thinned
        day.
        """
        self._note_work("begun", tables)
        if "activity" in tables:
            self.refuse_thinned()
        for table in (name for name in TIMES if name in tables):
            rows = f"{within(TIMES[table])} AND ({condition}) AND {self.of_recomputed_batches(table)}"
            self._delete(table, rows)
        for table in (name for name in ("samples", "activity") if name in tables):
            columns = ", ".join(identifier(name) for name, _ in self._columns(self.table(table)))
            self.change(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {self.table(table)}", condition)
        self._note_work("ended", tables)

    def _delete(self, table: str, condition: str) -> None:
        if not self.fence.cluster.name:
            self.change(f"DELETE FROM {table} {self._partition}", condition, **DELETE)
            return
        kind = "''" if table == "activity" else "profile_type"
        hashed = f"cityHash64(host_id, {kind}, toStartOfMinute({TIMES[table]}), batch_run, batch_sequence)"
        rows = self.client.query(
            f"SELECT DISTINCT {hashed} FROM {table} WHERE {condition}", parameters=self.time_range.parameters
        ).result_rows
        for first in range(0, len(rows), MAX_HASHES):
            hashes = ", ".join(str(number) for (number,) in rows[first : first + MAX_HASHES])
            chosen = f"{within(TIMES[table])} AND {hashed} IN ({hashes})"
            self.change(f"{delete_from(table, self.fence.cluster)} {self._partition}", chosen, **DELETE)

    @property
    def _partition(self) -> str:
        """Restricts a DELETE to the day of the slice. Else ClickHouse would look for its rows in parts of all days."""
        (day,) = self.time_range.days()
        return f"IN PARTITION '{day}'"

    def _note_work(self, state: str, tables: tuple[str, ...]) -> None:
        """Notes that rows of the slice are being replaced, so that rollups of them are not read."""
        start, end = self.time_range.start_unix_nano, self.time_range.end_unix_nano
        for table in (name for name in ("samples", "activity") if name in tables):
            self.change(changes.note_work_sql(state, start, end, of_operations=table == "activity"), "1")

    @property
    def spans(self) -> str:
        """The staged spans, each once."""
        return f"{self.table('spans')} FINAL"

    def make_of(self, query: str, name: str) -> str:
        """Makes a table of what a query returns, and returns its name."""
        table = self.table(name)
        self._make(table, f"ENGINE = StripeLog AS {query}")
        return table

    def count(self, table: str, condition: str = "1") -> int:
        """Returns how many rows a table has."""
        return int(self.client.query(f"SELECT count() FROM {table} WHERE {condition}").result_rows[0][0])

    def new_batches(self) -> str:
        """Returns the SQL condition that a staged batch is not stored."""
        return (
            f"({_KEY}) NOT IN (SELECT {_KEY} FROM batches WHERE (kind, collector, started_unix_nano, sequence)"
            f" {self.globally}IN (SELECT kind, collector, started_unix_nano, sequence FROM {self.table('batches')}))"
        )

    def count_new_batches(self, condition: str = "1") -> int:
        return self.count(self.table("batches"), f"{self.new_batches()} AND {condition}")

    def names_of_batches(self) -> set[BatchName]:
        """Returns the batches that were recomputed."""
        query = f"SELECT DISTINCT kind, collector, started_unix_nano, sequence, part FROM {self.table('batches')}"
        return {(kind, *numbers) for kind, *numbers in self.client.query(query).result_rows}

    def mark_stored(self, condition: str = "1") -> None:
        """Adds the staged batches to `batches`, so that the sink skips their messages from now on."""
        self.change(
            f"INSERT INTO {BATCHES} SELECT * EXCEPT (from_unix_nano, to_unix_nano) FROM {self.table('batches')}",
            f"{self.new_batches()} AND {condition}",
        )


def drop_tables(client: Client, tables: Iterable[str], where: str = "") -> None:
    names = list(tables)
    for first in range(0, len(names), _TABLES_AT_ONCE):
        part = ", ".join(names[first : first + _TABLES_AT_ONCE])
        client.command(f"DROP TABLE IF EXISTS {part}{where} SYNC", settings=ON_EVERY_HOST)


def prefix(name: str) -> str:
    """Returns what the names of the staging tables of a job begin with."""
    return f"job_{name}__"
