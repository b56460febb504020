"""Reads which days have rows."""

from datetime import datetime, timezone

from clickhouse_connect.driver.client import Client

from sinks.cluster import Cluster, quoted


def rows_of_days(client: Client, cluster: Cluster, *tables: str) -> dict[int, int]:
    """Returns how many rows of these tables each day has, by the Unix seconds of its start; on a cluster, those of all
    replicas."""
    parts, database = "system.parts", "currentDatabase()"
    if cluster.local:
        parts, database = f"clusterAllReplicas({quoted(cluster.name)}, system, parts)", quoted(cluster.local)
    rows = client.query(
        f"SELECT partition, sum(rows) FROM {parts}"
        f" WHERE database = {database} AND table IN {{tables:Array(String)}} AND active AND rows > 0"
        " GROUP BY partition",
        parameters={"tables": list(tables)},
    ).result_rows
    return {int(datetime.fromisoformat(day).replace(tzinfo=timezone.utc).timestamp()): int(n) for day, n in rows}
