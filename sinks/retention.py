"""Sets how long tables keep their rows."""

from clickhouse_connect.driver.client import Client

from sinks.cluster import on_cluster
from sinks.migrate import MigrationError, cluster_of, records

# Nodes and series are announced once a day, so they must outlive the samples that refer to them. A batch must be
# remembered for as long as Kafka keeps its message; else a consumer that starts again would store it again.
_BY_AGE = {
    "samples": ("time", 0, 1),
    "trace_samples": ("time", 0, 1),
    "activity": ("start_time", 0, 1),
    "spans": ("start_time", 0, 1),
    "nodes": ("last_seen", 2, 1),
    "series": ("last_seen", 2, 1),
    "batches": ("last_time", 0, 8),
    "dead_letters": ("time", 0, 1),
}
MAX_DAYS = 36_500
MIN_TOKENS = 1_000
MAX_TOKENS = 10_000_000


def retain(client: Client, days: int) -> None:
    """Makes the tables drop rows older than `days` (0: never). Raises MigrationError for negative or too large numbers.

    Locations have no age, see `drop_unused_locations`. A table with partitions drops whole parts, so a row may live
    longer: a day, in `batches` a week.
    """
    if not 0 <= days <= MAX_DAYS:
        raise MigrationError(f"retention is 0 (for ever) to {MAX_DAYS} days, not {days}")
    cluster = cluster_of(records(client))
    rows = client.query(
        "SELECT name, partition_key != '', create_table_query LIKE '% TTL %' FROM system.tables"
        " WHERE database = currentDatabase()"
    ).result_rows
    found = {name: (bool(partitioned), bool(has_ttl)) for name, partitioned, has_ttl in rows}
    for table, (column, more, least) in _BY_AGE.items():
        partitioned, has_ttl = found[table]
        changes = []
        if days:
            changes.append(f"MODIFY TTL toDateTime({column}) + INTERVAL {max(days + more, least)} DAY")
            if partitioned:
                changes.append("MODIFY SETTING ttl_only_drop_parts = 1")
        elif has_ttl:
            changes.append("REMOVE TTL")
        for change in changes:
            client.command(on_cluster(f"ALTER TABLE {table} {change}", cluster))


def remember_inserts(client: Client, tokens: int) -> None:
    """Makes the tables remember the deduplication tokens of so many inserts. Raises MigrationError for absurd numbers.

    A process writes at most 12 ranges a second (`sinks.assignment.RANGES_PER_S`), so 10,000 tokens for each process are
    14 minutes. A range whose process died must be written again within that time.
    """
    if not MIN_TOKENS <= tokens <= MAX_TOKENS:
        raise MigrationError(f"the number of insert tokens is {MIN_TOKENS} to {MAX_TOKENS}, not {tokens}")
    cluster = cluster_of(records(client))
    rows = client.query(
        "SELECT name FROM system.tables WHERE database = currentDatabase()"
        " AND engine_full LIKE '%replicated_deduplication_window%'"
    ).result_rows
    for (table,) in rows:
        change = f"ALTER TABLE {table} MODIFY SETTING non_replicated_deduplication_window = {tokens}"
        client.command(on_cluster(change, cluster))


def drop_unused_locations(client: Client) -> None:
    """Deletes locations that no node refers to and that were not announced for two days.

    Age alone does not decide: a location that is announced without a name does not renew the row that has its name.
    """
    client.command(
        "DELETE FROM locations WHERE last_seen < now() - INTERVAL 2 DAY"
        " AND location_id NOT IN (SELECT location_id FROM nodes)"
    )
