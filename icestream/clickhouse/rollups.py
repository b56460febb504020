"""Levels of rollups: what the builder in sinks/rollups/builder.py sums up, and what queries read instead of rows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

HOUR_S = 3600
DAY_S = 86_400


@dataclass(frozen=True)
class Level:
    """Rollups that are computed together, one bucket at a time."""

    name: str
    """In `rollup_builds`."""
    unit: str
    """minute, hour, 6 hours or day: what their rows are sums over."""
    bucket_s: int
    """Length of a bucket. Buckets start at multiples of it, in Unix seconds."""
    of_operations: bool = False
    """Whether they depend on activity and spans as well as on samples."""
    source: "Level | None" = None
    """The level whose rows are summed up; None: samples, activity and spans are."""


MINUTES = Level("minute", "minute", HOUR_S)
"""Sums over minutes; those of an hour are computed together."""
HOURS = Level("hour", "hour", HOUR_S)
DAYS = Level("day", "day", DAY_S)
GAUGE_HOURS = Level("gauge hour", "hour", HOUR_S)
GAUGE_DAYS = Level("gauge day", "day", DAY_S)
GAUGE_LEVELS = (GAUGE_HOURS, GAUGE_DAYS)
"""Those of gauges, with what averages over time need. Gauges are also in the rollups of all samples, as sums."""
LEVELS = (MINUTES, HOURS, DAYS, *GAUGE_LEVELS)
"""Those of samples."""
OPERATION_MINUTES = Level("operation minute", "minute", HOUR_S, of_operations=True)
OPERATION_HOURS = Level("operation hour", "hour", HOUR_S, of_operations=True, source=OPERATION_MINUTES)
OPERATION_SIX_HOURS = Level("operation 6 hours", "6 hours", 6 * HOUR_S, of_operations=True, source=OPERATION_HOURS)
"""With them, a day until now has less than half as many rows: reading their sketches takes most of a query's time."""
OPERATION_DAYS = Level("operation day", "day", DAY_S, of_operations=True, source=OPERATION_HOURS)
OPERATION_LEVELS = (OPERATION_MINUTES, OPERATION_HOURS, OPERATION_SIX_HOURS, OPERATION_DAYS)
"""Those of operations and their requests."""
REQUESTS = "requests"
"""With this, `work` in `sample_changes` begins where activity or spans changed, which only rollups of requests have."""

# `from` and `until` in these are Unix seconds, multiples of `bucket`.
IN_RANGE = "start_time >= toDateTime({from:UInt32}, 'UTC') AND start_time < toDateTime({until:UInt32}, 'UTC')"
"""The condition on the start of a bucket."""
_OF_LEVEL = f"{IN_RANGE} AND ({{requests:UInt8}} OR NOT startsWith(work, '{REQUESTS}'))"
BUILDS_SQL = f"""
SELECT toString(level) AS level, toUnixTimestamp(start_time) AS start, build, state = 'final' AS final, changes
FROM rollup_builds WHERE {IN_RANGE} AND state != 'begun'"""
"""Complete builds of all levels: `changes` are those that a build knows."""
CHANGED_HOURS_SQL = f"""
SELECT toUnixTimestamp(start_time) AS start, count() AS changes FROM sample_changes WHERE {_OF_LEVEL} GROUP BY start"""
"""How many changes each hour has, if it has any."""
CHANGES_SQL = f"""
SELECT intDiv(toUnixTimestamp(start_time), {{bucket:UInt32}}) * {{bucket:UInt32}} AS start,
    sum(noted) AS changes, max(open) AS open, max(last) AS last
FROM
(
    SELECT start_time, work, count() AS noted, argMax(state, noted_time) = 'begun' AS open,
        toUnixTimestamp(max(noted_time)) AS last
    FROM sample_changes WHERE {_OF_LEVEL} GROUP BY start_time, work
)
GROUP BY start"""
"""For each bucket with changes: how many, whether a job has begun one and not ended it, and when the last one was."""


class Build(NamedTuple):
    """A complete build of a bucket. The larger one is the better one."""

    final: bool
    number: int


def valid_builds(
    builds: Iterable[tuple[int, int, int, int]], changes_of_hour: Mapping[int, int], level: Level
) -> dict[int, Build]:
    """Returns the best build that queries may read of each bucket, by its start, in order.

    `builds`: start, build, final and changes of BUILDS_SQL, of the level. One is valid if it is final, or if it knows
    all changes of its bucket.
    """
    changes: dict[int, int] = {}
    for hour, count in changes_of_hour.items():
        start = hour // level.bucket_s * level.bucket_s
        changes[start] = changes.get(start, 0) + count
    best: dict[int, Build] = {}
    for start, number, final, known in builds:
        if final or known == changes.get(start, 0):
            build = Build(bool(final), number)
            best[start] = max(best.get(start, build), build)
    return dict(sorted(best.items()))


def bucket_parameters(level: Level, from_unix_s: int, until_unix_s: int) -> dict[str, int]:
    """Returns the parameters of these statements for the buckets of a level that lie in or reach into a time range.

    The changes are those that rollups of the level do not have.
    """
    first = max(from_unix_s, 0) // level.bucket_s * level.bucket_s
    last = -(-until_unix_s // level.bucket_s) * level.bucket_s
    return {
        "bucket": level.bucket_s,
        "from": min(first, _MAX_S),
        "until": min(last, _MAX_S),
        "requests": int(level.of_operations),
    }


_MAX_S = 2**32 - 1
"""The end of ClickHouse's DateTime."""
