"""Deletes the rows of builds that no query reads any more."""

from typing import NamedTuple

from clickhouse_connect.driver.client import Client

from icestream.clickhouse.rollups import Level
from sinks.clickhouse.cluster import ON_EVERY_HOST, ONE_SERVER, Cluster, delete_from
from sinks.rollups.tables import TABLES

KILLED_AFTER_S = 3600
"""A build that began longer ago than this and did not complete was killed."""
_IN_USE_S = 600
"""How long a query may still read a build after there is a newer one."""


class _Build(NamedTuple):
    """A build of a bucket; the greatest one is the one that queries read, if it is complete."""

    is_final: bool
    is_complete: bool
    number: int
    noted_unix_s: int


def drop_unused_builds(client: Client, level: Level, now_unix_s: int, cluster: Cluster = ONE_SERVER) -> None:
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
        *others, best = sorted(_Build(*build) for build in builds)
        followed = best.is_complete and best.noted_unix_s + _IN_USE_S < now_unix_s
        for build in (*others, *(() if best.is_complete else (best,))):
            killed = not build.is_complete and build.noted_unix_s + KILLED_AFTER_S < now_unix_s
            if killed or (followed and build.is_complete):
                starts.append(start)
                numbers.append(build.number)
    if not numbers:
        return
    unused = {"starts": sorted(set(starts)), "builds": numbers}
    key = "toStartOfHour(start_time)" if level.unit == "minute" else "start_time"
    for table in (*TABLES[level], "rollup_builds"):
        client.command(
            f"{delete_from(table, cluster)} WHERE {key} IN"
            " (SELECT toDateTime(arrayJoin({starts:Array(UInt32)}), 'UTC')) AND build IN {builds:Array(UInt64)}",
            parameters=unused,
            settings=ON_EVERY_HOST,
        )
