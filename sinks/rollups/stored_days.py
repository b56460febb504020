"""Reads which days have rows or rollups."""

from datetime import datetime, timezone

from clickhouse_connect.driver.client import Client

from icestream.clickhouse.rollups import DAY_S, Level
from sinks.clickhouse.cluster import Cluster, quoted


def date_of(day: int) -> str:
    """Returns the date of a day by the Unix seconds of its start, as ClickHouse names its partition."""
    return datetime.fromtimestamp(day, timezone.utc).date().isoformat()


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


def days_of_builds(client: Client, level: Level, from_unix_s: int) -> list[int]:
    """Returns the starts of days since a moment with builds of a level."""
    rows = client.query(
        "SELECT DISTINCT intDiv(toUnixTimestamp(start_time), {day:UInt32}) * {day:UInt32} FROM rollup_builds"
        " WHERE level = {level:String} AND state != 'begun' AND start_time >= toDateTime({from:UInt32}, 'UTC')",
        parameters={"day": DAY_S, "level": level.name, "from": max(from_unix_s, 0)},
    ).result_rows
    return [int(day) for (day,) in rows]
