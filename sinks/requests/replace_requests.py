"""Replaces the rows of a day's requests by those that are kept, whole traces on all shards.

What is kept is copied into new tables, whose partitions then take the place of the day's. Each thinning has tables of
its own: any number of processes may thin a day at once, or go on where one was killed, and all come to the same rows.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from clickhouse_connect.driver.client import Client

from icestream.clickhouse.rollups import DAY_S
from icestream.clickhouse.thinning import kept_traces
from sinks.clickhouse.change_tables import change_tables
from sinks.clickhouse.cluster import (
    ON_EVERY_HOST,
    Cluster,
    alter_table,
    create_like,
    database_name,
    database_of_rows,
    distribute,
    drop_table,
    of_all_hosts,
    of_this_host,
)
from sinks.clickhouse.damaged_parts import whole_parts
from sinks.requests.kept_requests import days_near
from sinks.rollups.changes import insert_settings
from sinks.rollups.old_samples import ANY_SIZE
from sinks.rollups.operation_tables import LIMITS, OF_TRACES, SETTINGS, between
from sinks.rollups.stored_days import date_of

TABLES: tuple[str, ...] = ("activity", "entry_spans", "spans", "span_operations")
"""The tables that are thinned; their partitions are days."""
_OF_SPANS = TABLES[2:]
"""Those that keep the spans of all samples."""
_LEFT_NS = DAY_S * 10**9
"""Copies that are older were left by a process that was killed."""
_EMPTY_COPY = "SELECT name FROM system.settings WHERE name = 'allow_replace_partition_from_empty_source'"
"""Newer versions of ClickHouse need this setting where a shard keeps no row of a table."""


@contextmanager
def copies(client: Client, cluster: Cluster) -> Iterator[dict[str, str]]:
    """Makes an empty copy of each of TABLES, and yields the names of the copies; drops them at the end, and those that
    killed processes have left. Raises the client's errors and DiskFullError."""
    now = time.time_ns()
    made = {table: f"kept_{now}_{table}" for table in TABLES}
    try:
        created = client.query(
            "SELECT name, create_table_query FROM system.tables"
            f" WHERE database = {database_of_rows(cluster)} AND name IN {TABLES}"
        ).result_rows
        for table, create in created:
            change_tables(client, create_like(create, table, made[table], cluster))
        distribute(client, cluster)
        yield made
    finally:
        names = client.query(
            f"SELECT name FROM system.tables WHERE database IN (currentDatabase(), {database_of_rows(cluster)})"
            r" AND toUInt64OrZero(extract(name, '^kept_(\d+)_')) BETWEEN 1 AND {killed:UInt64}",
            parameters={"killed": now - _LEFT_NS},
        ).result_rows
        for name in (*made.values(), *(row[0] for row in names)):
            for statement in drop_table(name, cluster):
                client.command(statement)


def copy_kept(client: Client, day: int, traces: dict[str, str], copies: Mapping[str, str], cluster: Cluster) -> None:
    """Copies the rows of a day that are kept of a range of traces: of `kept_traces`, and the spans of samples."""
    kept = kept_traces(f"{days_near(day)} AND {OF_TRACES}")
    # The last samples of a span may be of the next day.
    sampled = between(str(day - 3600), str(day + 2 * DAY_S), "time")
    sampled = f"(trace_id, span_id) IN (SELECT trace_id, span_id FROM trace_samples {sampled} AND {OF_TRACES})"
    for table, copy in copies.items():
        condition = f"({kept} OR {sampled})" if table in _OF_SPANS else kept
        select = f"SELECT * FROM {table} {between(str(day), str(day + DAY_S))} AND {OF_TRACES} AND {condition}"
        with whole_parts(client):
            settings = insert_settings(cluster) | SETTINGS | LIMITS
            client.command(f"INSERT INTO {copy} {select}", parameters=traces, settings=settings)


def newest_blocks(client: Client, day: int, cluster: Cluster) -> list[tuple[object, ...]]:
    """Returns what changes whenever rows of a day are inserted on any host, and not when parts are merged."""
    of_day = "database = {database:String} AND partition = {day:String} AND table IN {tables:Array(String)}"
    rows = client.query(
        f"SELECT hostName(), table, max(max_block_number) FROM {of_all_hosts('parts', cluster)}"
        f" WHERE active AND {of_day} GROUP BY ALL ORDER BY ALL",
        parameters={"database": database_name(client, cluster), "tables": list(TABLES), "day": date_of(day)},
    ).result_rows
    return [tuple(row) for row in rows]


def replace_day(client: Client, day: int, copies: Mapping[str, str], cluster: Cluster) -> None:
    """Replaces the rows of a day by those of the copies, in one table after the other. All hosts need the copies."""
    empty = {str(name): 1 for (name,) in client.query(_EMPTY_COPY).result_rows}
    for table, copy in copies.items():
        replace = f"REPLACE PARTITION '{date_of(day)}' FROM {of_this_host(copy, cluster)}"
        client.command(f"{alter_table(table, cluster)} {replace}", settings=ANY_SIZE | ON_EVERY_HOST | empty)
