"""Deletes the rows of builds that no query reads any more."""

from clickhouse_connect.driver.client import Client

from icestream.rollups import Level
from sinks.cluster import ON_EVERY_HOST, ONE_SERVER, Cluster, delete_from
from sinks.rollup_tables import TABLES

STARTED_S = 3600
"""A build that began longer ago than this and did not complete was killed."""
_IN_USE_S = 600
"""How long a query may still read a build after there is a newer one."""


def drop_unused(client: Client, level: Level, now_unix_s: int, cluster: Cluster = ONE_SERVER) -> None:
    """Deletes the rows of builds that were killed, or that have been followed by another one for a while."""
    rows = client.query(
        "SELECT start, groupArray((final, complete, build, noted)) AS builds FROM"
        " (SELECT toUnixTimestamp(start_time) AS start, build, max(state = 'final') AS final,"
        "  max(state != 'begun') AS complete, toUnixTimestamp(max(noted_time)) AS noted"
        "  FROM rollup_builds WHERE level = {level:String} GROUP BY start, build)"
        " GROUP BY start HAVING count() > 1 OR min(complete) = 0",
        parameters={"level": level.name},
    ).result_rows
    starts, numbers = [], []
    for start, builds in rows:
        *others, best = sorted(builds)
        followed = best[1] and best[3] + _IN_USE_S < now_unix_s
        for _, complete, number, noted in (*others, *(() if best[1] else (best,))):
            if (followed and complete) or (not complete and noted + STARTED_S < now_unix_s):
                starts.append(start)
                numbers.append(number)
    if not numbers:
        return
    unused = {"starts": sorted(set(starts)), "builds": numbers}
    key = "toStartOfHour(start_time)" if level.unit == "minute" else "start_time"
    for table in (*TABLES[level], "rollup_builds"):
        if table != "series_seen":
            client.command(
                f"{delete_from(table, cluster)} WHERE {key} IN"
                " (SELECT toDateTime(arrayJoin({starts:Array(UInt32)}), 'UTC')) AND build IN {builds:Array(UInt64)}",
                parameters=unused,
                settings=ON_EVERY_HOST,
            )
