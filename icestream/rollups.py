"""Levels of rollups: what the builder in sinks/rollups.py sums up, and what queries read instead of samples."""

from dataclasses import dataclass

HOUR_S = 3600
DAY_S = 86_400


@dataclass(frozen=True)
class Level:
    """Rollups that are computed together, one bucket at a time."""

    name: str
    bucket_s: int
    """Length of a bucket. Buckets start at multiples of it, in Unix seconds."""


MINUTES = Level("minute", HOUR_S)
"""Sums over minutes; those of an hour are computed together."""
HOURS = Level("hour", HOUR_S)
DAYS = Level("day", DAY_S)
LEVELS = (MINUTES, HOURS, DAYS)

# Of these two, `from` and `until` are Unix seconds, multiples of `bucket`.
_CHANGES = """
    SELECT intDiv(toUnixTimestamp(start_time), {bucket:UInt32}) * {bucket:UInt32} AS start,
        sum(noted) AS changes, max(open) AS open, max(last) AS last
    FROM
    (
        SELECT start_time, work, count() AS noted, argMax(state, noted_time) = 'begun' AS open,
            toUnixTimestamp(max(noted_time)) AS last
        FROM sample_changes
        WHERE start_time >= toDateTime({from:UInt32}, 'UTC') AND start_time < toDateTime({until:UInt32}, 'UTC')
        GROUP BY start_time, work
    )
    GROUP BY start"""
CHANGES_SQL = f"SELECT start, changes, open, last FROM ({_CHANGES})"
"""Of each bucket with changes: how many, whether a job has begun one and not ended it, and when the last one was."""
VALID_BUILDS_SQL = f"""
SELECT start, argMax(build, (is_final, build)) AS build, max(is_final) AS final
FROM
(
    SELECT toUnixTimestamp(start_time) AS start, build, state = 'final' AS is_final, changes AS known_changes
    FROM rollup_builds
    WHERE level = {{level:String}} AND state != 'begun'
        AND start_time >= toDateTime({{from:UInt32}}, 'UTC') AND start_time < toDateTime({{until:UInt32}}, 'UTC')
) AS builds
LEFT JOIN ({_CHANGES}) AS changed ON builds.start = changed.start
WHERE is_final OR known_changes = changes
GROUP BY start
ORDER BY start"""
"""Of each bucket that queries may read from rollups: the build to read, and whether it is final."""


def bucket_parameters(level: Level, from_unix_s: int, until_unix_s: int) -> dict[str, int | str]:
    """Returns the parameters of these queries for the buckets of a level that lie in or reach into a time range."""
    first = max(from_unix_s, 0) // level.bucket_s * level.bucket_s
    last = -(-until_unix_s // level.bucket_s) * level.bucket_s
    return {"level": level.name, "bucket": level.bucket_s, "from": min(first, _MAX_S), "until": min(last, _MAX_S)}


_MAX_S = 2**32 - 1
"""The end of ClickHouse's DateTime."""
