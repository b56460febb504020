"""Sets how long tables keep their rows."""

import re
import time
from typing import NamedTuple

from clickhouse_connect.driver.client import Client

from icestream.clickhouse.recent_operations import RECENT_DAYS
from icestream.clickhouse.rollups import LEVELS, OPERATION_LEVELS
from sinks.clickhouse.change_tables import change_tables
from sinks.clickhouse.cluster import (
    GLOBAL,
    ON_EVERY_HOST,
    ONE_SERVER,
    Cluster,
    database_of_rows,
    delete_from,
    on_cluster,
)
from sinks.clickhouse.migrate import MigrationError, cluster_of_tables
from sinks.settings import RollupDays

DEFAULT_DAYS = 14
"""For how many days new tables keep rows that are not rollups."""


class _Expiry(NamedTuple):
    """When a table drops a row: the days of the retention and some more, or at least some, after a time of the row."""

    since: str
    """The time: a column, or another expression of SQL."""
    more_days: int = 0
    least_days: int = 1

    def days(self, retention_days: int) -> int:
        """0: never."""
        return max(retention_days + self.more_days, self.least_days) if retention_days else 0


# A batch must be remembered for as long as Kafka keeps its message, however old its rows are; else a consumer that
# starts again would store it again. Changes of samples must outlive the samples, which wait for their rollups. Which
# requests are thinned is kept longer than these.
_BY_AGE = {
    "trace_samples": _Expiry("time"),
    "activity": _Expiry("start_time"),
    "spans": _Expiry("start_time"),
    "span_operations": _Expiry("start_time"),
    "entry_spans": _Expiry("start_time"),
    "batches": _Expiry("greatest(last_time, stored_time)", least_days=8),
    "dead_letters": _Expiry("time"),
    "annotations": _Expiry("time", least_days=400),
    "sample_changes": _Expiry("start_time", more_days=90),
    "thinned_days": _Expiry("day", more_days=2),
    "thinned_operations": _Expiry("day", more_days=2),
    "kept_traces": _Expiry("day", more_days=2),
}
_LEAST_SAMPLE_DAYS = 2
"""Samples are kept for a day after their day was summed up."""
# Nodes and series are announced once a day, so they must outlive the rows that refer to them.
_REFERRED_TO = {
    "nodes": _Expiry("last_seen", more_days=2),
    "series": _Expiry("last_seen", more_days=2),
    "series_seen": _Expiry("start_time"),
}
# Rows of rollups go after the builds that they belong to.
_ROLLUPS = {
    "minute": ("service_minutes",),
    "hour": ("series_hours", "service_stack_hours"),
    "day": ("series_stack_days", "service_stack_days"),
    "gauge hour": ("gauge_hours",),
    "gauge day": ("gauge_days", "gauge_stack_days"),
    "operation minute": ("operation_minutes",),
    "operation hour": ("operation_hours",),
    "operation 6 hours": ("operation_six_hours",),
    "operation day": ("operation_days",),
}
_MORE_THAN_ROWS = 4
"""How many days longer than rows the rollups of operations are kept: coarser ones are built again from them."""
MAX_DAYS = 36_500
MIN_TOKENS = 1_000
MAX_TOKENS = 10_000_000
_NO_WAIT: dict[str, int | str] = {"lightweight_deletes_sync": 0}
"""A sink that waited for a long DELETE would lose its partitions."""
_MOST_DELETED = 10_000
"""Locations that are deleted at once from the tables of a cluster: their IDs are part of the statement."""


def set_retention(client: Client, days: int | None, rollups: RollupDays = RollupDays(), new: bool = False) -> list[str]:
    """Makes the tables drop rows older than `days` (0: never; None: unchanged), and rollups by their own age, those of
    operations not before the rows. Raises MigrationError for negative or too large numbers, and DiskFullError.

    Returns the tables that were changed. `new`: the tables have just been made; None then is `DEFAULT_DAYS`.

    `samples` has no age of its own: the sinks drop a day of samples when its rollups are final
    (sinks/rollups/old_samples.py), however long that takes.

    What rows refer to by ID is kept for as long as any of them. Locations have no age, see `drop_unused_locations`. A
    table with partitions drops whole parts, so a row may live longer: a day, in `batches` a week, in rollups a month.
    """
    of_unit = {"minute": rollups.minute, "hour": rollups.hour, "6 hours": rollups.hour, "day": rollups.day}
    for number in (days or 0, *of_unit.values()):
        if not 0 <= number <= MAX_DAYS:
            raise MigrationError(f"retention is 0 (for ever) to {MAX_DAYS} days, not {number}")
    tables = _Tables(client)
    if new and days is None:
        days = DEFAULT_DAYS
    if days is not None:
        for table, expiry in _BY_AGE.items():
            tables.drop_after(table, expiry.since, expiry.days(days))
        tables.drop_after("recent_operations", "start_time", min(days or RECENT_DAYS, RECENT_DAYS))
    samples = sample_days(client, tables.cluster)
    all_days = (samples, *of_unit.values())
    longest = max(all_days) if all(all_days) else 0
    for table, expiry in _REFERRED_TO.items():
        tables.drop_after(table, expiry.since, expiry.days(longest))
    of_level = {level.name: of_unit[level.unit] for level in LEVELS}
    for level in OPERATION_LEVELS:
        kept = of_unit[level.unit]
        of_level[level.name] = max(kept, samples + _MORE_THAN_ROWS) if kept and samples else 0
    for name, names in _ROLLUPS.items():
        for table in names:
            tables.drop_after(table, "start_time", of_level[name] + 2 if of_level[name] else 0)
    expiries = [
        f"start_time + INTERVAL {kept} DAY DELETE WHERE level = '{level}'" for level, kept in of_level.items() if kept
    ]
    if {level: tables.kept_days("rollup_builds", level) for level in of_level} != of_level:
        tables.change("rollup_builds", ", ".join(expiries))
    return tables.changed


def sample_days(client: Client, cluster: Cluster = ONE_SERVER) -> int:
    """Returns for how many days samples are kept; 0: for ever."""
    days = kept_days(client, "trace_samples", cluster=cluster)
    return max(days, _LEAST_SAMPLE_DAYS) if days else 0


def kept_days(client: Client, table: str, level: str = "", cluster: Cluster = ONE_SERVER) -> int:
    """Returns for how many days a table keeps rows, `rollup_builds` those of a level; 0: for ever."""
    ((create, _),) = _created(client, cluster, "name = {table:String}", table=table).values()
    return _days(create, level)


def _days(create: str, level: str = "") -> int:
    """Returns `kept_days` from the statement that would make the table."""
    where = rf" WHERE level = '{level}'" if level else ""
    days = re.search(rf"toIntervalDay\((\d+)\){where}", create.partition(" TTL ")[2])
    return int(days[1]) if days else 0


def _created(client: Client, cluster: Cluster, where: str = "1", **parameters: str) -> dict[str, tuple[str, bool]]:
    """Returns for each table of rows the statement that would make it, and whether it has partitions."""
    rows = client.query(
        "SELECT name, create_table_query, partition_key != '' FROM system.tables"
        f" WHERE database = {database_of_rows(cluster)} AND {where}",
        parameters=parameters,
    ).result_rows
    return {str(name): (str(create), bool(partitioned)) for name, create, partitioned in rows}


class _Tables:
    """Changes how long tables keep rows, of each table once: what was read at first is not read again."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.cluster = cluster_of_tables(client)
        self._created = _created(client, self.cluster)
        self.changed: list[str] = []

    def kept_days(self, table: str, level: str = "") -> int:
        """As the function, before any change."""
        return _days(self._created[table][0], level)

    def drop_after(self, table: str, since: str, days: int) -> None:
        """Makes a table drop rows so many days after a time of theirs; 0: never. ClickHouse may rewrite a table for
        that, so it does nothing if the table does so already."""
        if self.kept_days(table) != days:
            self.change(table, f"toDateTime({since}) + INTERVAL {days} DAY" if days else "")

    def change(self, table: str, ttl: str) -> None:
        create, partitioned = self._created[table]
        self.changed.append(table)
        changes = ["MODIFY SETTING ttl_only_drop_parts = 1"] if ttl and partitioned else []
        changes += [f"MODIFY TTL {ttl}"] if ttl else ["REMOVE TTL"] if " TTL " in create else []
        for change in changes:
            change_tables(self._client, on_cluster(f"ALTER TABLE {table} {change}", self.cluster))


def remember_inserts(client: Client, tokens: int) -> None:
    """Makes the tables remember the tokens of this many inserts. Raises MigrationError for absurd numbers.

    A process writes at most 12 ranges a second (`sinks.runner.assignment.RANGES_PER_S`), so 10,000 tokens for each
    process are 14 minutes. A range whose process died must be written again within that time.
    """
    if not MIN_TOKENS <= tokens <= MAX_TOKENS:
        raise MigrationError(f"the number of insert tokens is {MIN_TOKENS} to {MAX_TOKENS}, not {tokens}")
    cluster = cluster_of_tables(client)
    rows = client.query(
        f"SELECT name FROM system.tables WHERE database = {database_of_rows(cluster)}"
        " AND engine_full LIKE '%replicated_deduplication_window%'"
        f" AND NOT match(engine_full, 'replicated_deduplication_window = {tokens}\\\\b')"
    ).result_rows
    for (table,) in rows:
        change = f"ALTER TABLE {table} MODIFY SETTING non_replicated_deduplication_window = {tokens}"
        change_tables(client, on_cluster(change, cluster))


def drop_unused_locations(client: Client, cluster: Cluster = ONE_SERVER) -> None:
    """Deletes locations that no node refers to and that were not announced for two days.

    Age alone does not decide: a location that is announced without a name does not renew the row that has its name.
    """
    no_node = "location_id NOT IN (SELECT location_id FROM nodes)"
    if not cluster.name:
        client.command(
            f"DELETE FROM locations WHERE last_seen < now() - INTERVAL 2 DAY AND {no_node}", settings=_NO_WAIT
        )
        return
    # The replicas of a table cannot each work out a condition that depends on other tables and on the time.
    old = f"last_seen < toDateTime({int(time.time()) - 2 * 86_400}, 'UTC')"
    rows = client.query(
        f"SELECT DISTINCT location_id FROM locations WHERE {old} AND {no_node} LIMIT {_MOST_DELETED}", settings=GLOBAL
    ).result_rows
    if rows:
        ids = ", ".join(str(location_id) for (location_id,) in rows)
        delete = f"{delete_from('locations', cluster)} WHERE {old} AND location_id IN ({ids})"
        client.command(delete, settings=_NO_WAIT | ON_EVERY_HOST)
