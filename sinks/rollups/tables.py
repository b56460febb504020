"""The tables of rollups, and the statements that fill them, for all buckets that are built together."""

from collections.abc import Mapping
from typing import Any

from icestream.clickhouse.gauges import IS_GAUGE
from icestream.clickhouse.rollups import (
    DAY_S,
    DAYS,
    GAUGE_DAYS,
    GAUGE_HOURS,
    GAUGE_LEVELS,
    HOUR_S,
    HOURS,
    IN_RANGE,
    MINUTES,
    Level,
)
from sinks.clickhouse.cluster import ACROSS_SHARDS, ON_EACH_SHARD, Cluster, quoted
from sinks.rollups import operation_tables
from sinks.rollups.operation_tables import OPERATION_TABLES

_SUMS = "sum(count) AS count_, sum(value) AS value_"
_NOT_ZERO = "HAVING count_ != 0 OR value_ != 0"
_PROFILES = "sum(count), sum(value), uniqExact(time), min(time), max(time)"
_OF_TIME = (
    "time >= fromUnixTimestamp64Milli(toInt64({from:UInt32}) * 1000, 'UTC')"
    " AND time < fromUnixTimestamp64Milli(toInt64({until:UInt32}) * 1000, 'UTC')"
)
_BUILD = "{build:UInt64} + toHour(start_)"
"""See `build_number`."""
_ROLLUPS = f"WHERE {IN_RANGE} AND build IN {{builds:Array(UInt64)}}"
TABLES: dict[Level, dict[str, str]] = OPERATION_TABLES | {
    MINUTES: {
        "service_minutes": f"SELECT profile_type, service, toStartOfMinute(time) AS start_, {_SUMS}, {_BUILD}"
        " FROM samples",
    },
    HOURS: {
        "series_hours": f"SELECT profile_type, service, toStartOfHour(time) AS start_, series_id, {_SUMS}, {_BUILD}"
        " FROM samples",
        "service_stack_hours": f"SELECT profile_type, service, toStartOfHour(time) AS start_, stack_id, {_SUMS},"
        f" {_BUILD} FROM samples",
    },
    DAYS: {
        "series_stack_days": "SELECT profile_type, service, toStartOfDay(time) AS start_, stack_id, series_id,"
        f" {_SUMS}, {_BUILD} FROM samples",
        "service_stack_days": f"SELECT profile_type, service, start_time, stack_id, {_SUMS}, build"
        f" FROM series_stack_days {_ROLLUPS} GROUP BY ALL {_NOT_ZERO}",
    },
    GAUGE_HOURS: {
        "gauge_hours": f"SELECT profile_type, service, toStartOfHour(time) AS start_, series_id, {_PROFILES}, {_BUILD}"
        " FROM samples",
    },
    GAUGE_DAYS: {
        "gauge_days": f"SELECT profile_type, service, toStartOfDay(time) AS start_, series_id, {_PROFILES}, {_BUILD}"
        " FROM samples",
        "gauge_stack_days": "SELECT profile_type, service, toStartOfDay(time) AS start_, stack_id, series_id,"
        f" {_SUMS}, {_BUILD} FROM samples",
    },
}
"""The tables of each level, and the SELECT that fills each. `fill` completes those that read samples."""


def build_number(first: int, start_unix_s: int) -> int:
    """Returns the number of the build of a bucket. `first`: of the builds that begin together, all of one day.

    The hour of the bucket tells them apart. Two buckets must not share a number: if only one of them was built again, a
    query that reads both would also find the old rows of that one.
    """
    return first + start_unix_s % DAY_S // HOUR_S


def fill(level: Level, builds: Mapping[int, int], settings: Mapping[str, int | str]) -> dict[str, str]:
    """Returns for each table, in order, the statement that computes the rollups of buckets.

    `builds`: the number of each build, by the start of its bucket in Unix seconds. `settings`: one at least. The
    statements have them, because the client of the embedded engine would read, set and restore each of a command.
    """
    of_insert = ", ".join(f"{name} = {quoted(str(value))}" for name, value in settings.items())
    with_gaps = max(builds) - min(builds) >= len(builds) * level.bucket_s
    of_buckets = " AND toUnixTimestamp(toStartOfHour(time)) IN {starts:Array(UInt32)}" if with_gaps else ""
    of_gauges = f" AND {IS_GAUGE}" if level in GAUGE_LEVELS else ""
    of_samples = f" WHERE {_OF_TIME}{of_buckets}{of_gauges} GROUP BY ALL"

    def end(select: str) -> str:
        if not select.endswith("FROM samples"):
            return ""
        return f"{of_samples} {_NOT_ZERO}" if _SUMS in select else of_samples  # a profile of nothing counts, too

    return {
        table: f"INSERT INTO {table} {_columns(table)} SETTINGS {of_insert} {select}{end(select)}"
        for table, select in TABLES[level].items()
    }


def fill_parameters(level: Level, builds: Mapping[int, int]) -> dict[str, Any]:
    """Returns the parameters that the statements of all levels have."""
    first = min(builds)
    return {
        "from": first,
        "until": max(builds) + level.bucket_s,
        "starts": sorted(builds),
        "builds": sorted(builds.values()),
        "build": builds[first] - build_number(0, first),
    }


def fill_settings(level: Level, cluster: Cluster) -> dict[str, int | str]:
    """Returns the settings that the statements of a level need."""
    if level.of_operations:
        return operation_tables.SETTINGS
    if not cluster.local:
        return {}
    return ACROSS_SHARDS if level in GAUGE_LEVELS else ON_EACH_SHARD  # a profile may have rows on several shards


def _columns(table: str) -> str:
    if table.startswith("operation_"):
        return f"({operation_tables.COLUMNS})"
    keys = {
        "service_minutes": "", "series_hours": "series_id, ", "gauge_hours": "series_id, ", "gauge_days": "series_id, ",
        "series_stack_days": "stack_id, series_id, ", "gauge_stack_days": "stack_id, series_id, ",
    }  # fmt: skip
    profiles = "profiles, first_time, last_time, " if table in ("gauge_hours", "gauge_days") else ""
    return f"(profile_type, service, start_time, {keys.get(table, 'stack_id, ')}count, value, {profiles}build)"
