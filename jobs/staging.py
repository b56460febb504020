"""Staging tables: tables like the live ones, in which a job collects what it recomputed of one slice."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from jobs.time_range import TimeRange, within
from sinks.clickhouse import SETTINGS
from sinks.rollup_changes import note_work

TABLES = ("samples", "activity", "spans", "series", "nodes", "locations", "batches")
"""The tables that hold what operators compute. A view fills `trace_samples` from `samples`."""
TIMES = {"trace_samples": "time", "samples": "time", "activity": "start_time"}
"""The tables whose rows a job replaces, in the order in which it deletes them -> their time."""
DELETE = {"lightweight_deletes_sync": 2}
"""Settings with which a DELETE has happened on every replica when it returns."""
_KEY = "kind, collector, started_unix_nano, sequence, part, output"


def insert_settings() -> dict[str, Any]:
    """Returns the settings of an insert with a token of its own.

    A job inserts rows again that were deleted; without the token ClickHouse would drop the block as a repetition.
    """
    return SETTINGS | {"insert_deduplication_token": uuid.uuid4().hex}


def drop_staging(client: Client, name: str) -> None:
    """Drops all staging tables of the job of this name."""
    rows = client.query(
        "SELECT name FROM system.tables WHERE database = currentDatabase() AND startsWith(name, {prefix:String})",
        parameters={"prefix": _prefix(name)},
    ).result_rows
    for (table,) in rows:
        client.command(f"DROP TABLE IF EXISTS `{table}` SYNC")


@dataclass(frozen=True)
class Staging:
    """The staging tables of one slice of a job."""

    client: Client
    name: str
    """The job's."""
    time_range: TimeRange

    def table(self, name: str) -> str:
        """Returns the name of a staging table."""
        return f"{_prefix(self.name)}{self.time_range.start_unix_nano // 10**6}_{name}"

    def make(self) -> None:
        """Makes the tables, empty. `batches` also tells from when to when the message reaches."""
        for name in TABLES:
            self.client.command(f"DROP TABLE IF EXISTS {self.table(name)} SYNC")
            self.client.command(f"CREATE TABLE {self.table(name)} AS {name}")
        self.client.command(
            f"ALTER TABLE {self.table('batches')} ADD COLUMN from_unix_nano Int64, ADD COLUMN to_unix_nano Int64"
        )

    def insert(self, name: str, rows: pa.Table) -> None:
        self.client.insert_arrow(self.table(name), rows, settings=insert_settings())

    def drop(self) -> None:
        for name in (*TABLES, "minutes"):
            self.client.command(f"DROP TABLE IF EXISTS {self.table(name)} SYNC")

    def fill_minutes(self, minutes: Iterable[tuple[str, int]]) -> str:
        """Makes a table of minutes of hosts (Unix seconds), and returns its name."""
        table = self.table("minutes")
        self.client.command(f"CREATE OR REPLACE TABLE {table} (host String, minute Int64) ENGINE = Memory")
        self.client.insert(table, [list(minute) for minute in minutes], column_names=["host", "minute"])
        return table

    def of_recomputed_batches(self, table: str) -> str:
        """Returns the SQL condition that a row of a live table comes from a batch that was recomputed.

        A recomputed sample has its trace, so the corrections by recomputed activity are among the rows to replace. Rows
        that were stored before rows named their batches count, too: they did not arrive just now.
        """
        kinds = "kind" if table == "activity" else "if(kind = 'activity', 'corrections', kind)"
        run = f"concat({kinds}, '/', collector, '/', toString(started_unix_nano), '/', toString(part))"
        return (
            f"(batch_run = '' OR (batch_run, batch_sequence) IN (SELECT {run}, sequence FROM {self.table('batches')}))"
        )

    def replace(self, tables: tuple[str, ...], condition: str = "1") -> None:
        """Replaces the rows of recomputed batches in these live tables, and in the slice, by the staged ones.

        `condition` restricts it further. The view fills `trace_samples`.
        """
        parameters = self.time_range.parameters
        changes_samples = "samples" in tables
        if changes_samples:
            note_work(self.client, "begun", self.time_range.start_unix_nano, self.time_range.end_unix_nano)
        for table in (name for name in TIMES if name in tables):
            self.client.command(
                f"DELETE FROM {table} WHERE {within(TIMES[table])} AND ({condition})"
                f" AND {self.of_recomputed_batches(table)}",
                parameters=parameters,
                settings=DELETE,
            )
        for table in (name for name in ("samples", "activity") if name in tables):
            self.client.command(
                f"INSERT INTO {table} SELECT * FROM {self.table(table)} WHERE {condition}",
                parameters=parameters,
                settings=insert_settings(),
            )
        if changes_samples:
            note_work(self.client, "ended", self.time_range.start_unix_nano, self.time_range.end_unix_nano)

    def insert_new_names(self) -> None:
        """Copies the staged series, nodes, spans and locations that the live tables lack, and better names."""
        keys = (("series", "series_id", "1"), ("nodes", "node_id", "1"),
                ("spans", "(trace_id, span_id)", within("start_time")))  # fmt: skip
        for name, key, where in keys:
            staged = self.table(name)
            self.client.command(
                f"INSERT INTO {name} SELECT * FROM {staged} FINAL WHERE {key} NOT IN"
                f" (SELECT {key} FROM {name} WHERE {where} AND {key} IN (SELECT {key} FROM {staged}))",
                parameters=self.time_range.parameters,
                settings=insert_settings(),
            )
        staged = self.table("locations")
        live = f"FROM locations WHERE location_id IN (SELECT location_id FROM {staged})"
        self.client.command(
            f"INSERT INTO locations SELECT * FROM {staged} FINAL"
            f" WHERE (location_id, version) NOT IN (SELECT location_id, version {live})"
            f" AND (version > 0 OR location_id NOT IN (SELECT location_id {live}))",
            settings=insert_settings(),
        )

    def new_batches(self) -> str:
        """Returns the SQL condition that a staged batch is not stored."""
        return (
            f"({_KEY}) NOT IN (SELECT {_KEY} FROM batches WHERE (kind, collector, started_unix_nano, sequence)"
            f" IN (SELECT kind, collector, started_unix_nano, sequence FROM {self.table('batches')}))"
        )

    def count_new_batches(self) -> int:
        query = f"SELECT count() FROM {self.table('batches')} WHERE {self.new_batches()}"
        return int(self.client.query(query).result_rows[0][0])

    def mark_stored(self) -> None:
        """Adds the staged batches to `batches`, so that the sink skips their messages from now on."""
        self.client.command(
            f"INSERT INTO batches SELECT * EXCEPT (from_unix_nano, to_unix_nano) FROM {self.table('batches')}"
            f" WHERE {self.new_batches()}",
            settings=insert_settings(),
        )


def _prefix(name: str) -> str:
    return f"job_{name}__"
