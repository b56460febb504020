"""Deletes the rows of a day's light requests, and leaves alone what was chosen to be kept, whole on all shards.

ClickHouse deletes in the background: each replica for itself, and after a restart it goes on. So that all replicas of
all shards come to the same result, the condition reads one table only, `kept_rows`, and every host has all of it before
anything is deleted. Each thinning has rows of its own there, and its statements count them: where one is missing, they
delete nothing.

Rows are deleted by mutations of a day's partition: these leave alone what is inserted after them.
"""

import logging

from clickhouse_connect.driver.client import Client

from icestream.clickhouse.rollups import DAY_S
from icestream.clickhouse.thinning import IS_SAMPLED, kept_traces
from sinks.clickhouse.cluster import (
    ON_EVERY_HOST,
    Cluster,
    alter_table,
    database_name,
    of_all_hosts,
    of_this_host,
    wait_for_every_host,
)
from sinks.clickhouse.damaged_parts import whole_parts
from sinks.requests.kept_requests import days_near
from sinks.rollups.changes import insert_settings
from sinks.rollups.operation_tables import LIMITS, OF_TRACES, SETTINGS, between
from sinks.rollups.stored_days import date_of

TABLES: tuple[str, ...] = ("activity", "entry_spans", "spans", "span_operations")
"""The tables that are thinned; their partitions are days."""
OF_SPANS = TABLES[2:]
"""Those that keep the spans of all samples."""
_DELETE: dict[str, int | str] = ON_EVERY_HOST | {
    "mutations_sync": 0,  # the server deletes in the background
    "allow_nondeterministic_mutations": 1,  # ClickHouse cannot know that the subqueries have one result on all hosts
}
log = logging.getLogger(__name__)


def deletions_ended(client: Client, cluster: Cluster) -> bool:
    """Whether all hosts have deleted what they were told to delete. Logs why one cannot."""
    rows = client.query(
        f"SELECT table, latest_fail_reason FROM {of_all_hosts('mutations', cluster)}"
        " WHERE database = {database:String} AND table IN {tables:Array(String)} AND NOT is_done",
        parameters={"database": database_name(client, cluster), "tables": list(TABLES)},
    ).result_rows
    for table, reason in rows:
        if reason:
            log.error("rows of %s cannot be deleted: %s", table, reason)
    return not rows


def count_spans_of_samples(client: Client, day: int) -> int:
    """Returns about how many spans have samples that may need their rows of a day."""
    count = f"SELECT uniq(trace_id, span_id) FROM {_samples(day)}"
    return int(client.query(count, settings=LIMITS).result_rows[0][0])


def store_kept_traces(client: Client, day: int, thinning: int, cluster: Cluster) -> None:
    """Stores the traces of `kept_traces` for the hosts that delete rows of a day. `thinning`: a number of its own."""
    hashes = f"SELECT cityHash64(trace_id) AS hash FROM kept_traces WHERE {days_near(day)}"
    settings = insert_settings(cluster) | SETTINGS | LIMITS
    with whole_parts(client):
        client.command(_store(day, thinning, 0, hashes, cluster), settings=settings)


def store_kept_spans(client: Client, day: int, thinning: int, traces: dict[str, str], cluster: Cluster) -> None:
    """Likewise for the spans with samples in other traces, of a range of traces."""
    kept = kept_traces(f"{days_near(day)} AND {OF_TRACES}")
    of_range = f"{_samples(day)} AND {OF_TRACES} AND NOT {kept}"
    hashes = f"SELECT DISTINCT cityHash64(trace_id, span_id) AS hash FROM {of_range}"
    settings = insert_settings(cluster) | SETTINGS | LIMITS
    with whole_parts(client):
        client.command(_store(day, thinning, 1, hashes, cluster), parameters=traces, settings=settings)


def count_kept_rows(client: Client, day: int, thinning: int, cluster: Cluster) -> int:
    """Waits until all hosts have what was stored for a thinning; returns how many rows that are."""
    wait_for_every_host(client, cluster, "kept_rows")
    return int(client.query(f"SELECT count() FROM {_stored(day, thinning, cluster)}").result_rows[0][0])


def delete_others(
    client: Client, day: int, thinning: int, count: int, tables: tuple[str, ...], cluster: Cluster
) -> None:
    """Has the rows of a day deleted in these tables that are not to be kept. `count`: of `count_kept_rows`."""
    stored = _stored(day, thinning, cluster)
    for table in tables:
        where = (
            f"(SELECT count() FROM {stored}) = {count} AND NOT {IS_SAMPLED}"
            f" AND cityHash64(trace_id) NOT IN (SELECT hash FROM {stored} AND of_span = 0)"
        )
        if table in OF_SPANS:
            where += f" AND cityHash64(trace_id, span_id) NOT IN (SELECT hash FROM {stored} AND of_span = 1)"
        delete = f"{alter_table(table, cluster)} DELETE IN PARTITION '{date_of(day)}' WHERE {where}"
        client.command(delete, settings=_DELETE)


def _samples(day: int) -> str:
    # The last samples of a span may be of the next day.
    return f"trace_samples {between(str(day - 3600), str(day + 2 * DAY_S), 'time')}"


def _store(day: int, thinning: int, of_span: int, hashes: str, cluster: Cluster) -> str:
    """`hashes`: a SELECT of the column `hash`."""
    return (
        f"INSERT INTO {of_this_host('kept_rows', cluster)} (day, thinning, of_span, hash)"
        f" SELECT '{date_of(day)}', {thinning}, {of_span}, hash FROM ({hashes})"
    )


def _stored(day: int, thinning: int, cluster: Cluster) -> str:
    return f"{of_this_host('kept_rows', cluster)} WHERE day = '{date_of(day)}' AND thinning = {thinning}"
