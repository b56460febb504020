"""Drops samples that are older than they are to be kept, a day at a time, once all rollups of the day are final.

With a TTL, ClickHouse would drop them by age alone, even if no sink has run since and nothing has summed them up.
"""

from collections.abc import Sequence

from clickhouse_connect.driver.client import Client

from icestream.clickhouse.rollups import DAY_S, IN_RANGE, Level
from sinks.clickhouse.cluster import ON_EVERY_HOST, ONE_SERVER, Cluster, alter_table
from sinks.rollups.stored_days import date_of

_FINAL = (
    "SELECT toUnixTimestamp(start_time) FROM rollup_builds WHERE level = {level:String} AND state = 'final'"
    f" AND {IN_RANGE}"
)
ANY_SIZE: dict[str, int | str] = {"max_partition_size_to_drop": 0}
"""By default, ClickHouse refuses to drop a partition of over 50 GB, which is a day of 1,000 hosts."""


def drop_old_samples(
    client: Client,
    days: Sequence[int],
    before_unix_s: int,
    levels: Sequence[tuple[Level, int]],
    cluster: Cluster = ONE_SERVER,
) -> list[int]:
    """Drops the days that ended before a moment and whose rollups are final; returns them. Raises the client's errors.

    `days`: those with samples, as Unix seconds of their start. `levels`: with the start of their oldest bucket that is
    kept; older ones need no rollups.
    """
    old = [day for day in days if day + DAY_S <= before_unix_s]
    if not old:
        return []
    missing: set[int] = set()
    for level, oldest in levels:
        span = {"level": level.name, "from": min(old), "until": max(old) + DAY_S}
        final = {row[0] for row in client.query(_FINAL, parameters=span).result_rows}
        starts = {start for day in old for start in range(day, day + DAY_S, level.bucket_s) if start >= oldest}
        missing |= {start // DAY_S * DAY_S for start in starts - final}
    dropped = [day for day in old if day not in missing]
    for day in dropped:
        change = f"{alter_table('samples', cluster)} DROP PARTITION '{date_of(day)}'"
        client.command(change, settings=ANY_SIZE | ON_EVERY_HOST)
    return dropped
