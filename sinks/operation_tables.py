"""The tables of rollups of operations, and the SELECTs that fill them.

A request belongs to the minute in which it began, a sample to the minute in which it was taken, an interval to the
minute in which it began. So each row is counted once. Hours are summed up from minutes, and days from hours.
"""

from collections.abc import Collection

from clickhouse_connect.driver.client import Client

from icestream import operation_sums
from icestream.operation_sums import KEYS, MERGED, SUMS
from icestream.rollups import IN_RANGE, OPERATION_DAYS, OPERATION_HOURS, OPERATION_MINUTES, Level
from icestream.span_operations import HAS_SPAN_NAMES, select_span_operations
from sinks.cluster import ACROSS_SHARDS

COLUMNS = ", ".join((*KEYS, "start_time", *SUMS, "build"))
_FROM, _UNTIL = "toInt64({from:UInt32})", "toInt64({until:UInt32})"
SOURCE_TABLES = ("samples", "activity", "entry_spans", "span_operations", "spans")
"""The tables of rows that rollups of operations are summed up from; their partitions are days."""
SETTINGS: dict[str, int | str] = ACROSS_SHARDS | {  # a request may have rows on several shards
    "join_algorithm": "grace_hash",  # an hour may have more requests than memory has room for
    "max_bytes_in_join": 400_000_000,
}


def _between(first_s: str, until_s: str, column: str = "start_time") -> str:
    """WHERE ... of rows in [first, until), SQL expressions of Unix seconds."""
    return (
        f"WHERE {column} >= fromUnixTimestamp64Milli(({first_s}) * 1000, 'UTC')"
        f" AND {column} < fromUnixTimestamp64Milli(({until_s}) * 1000, 'UTC')"
    )


def _of_buckets(column: str = "start_time") -> str:
    hour = f"toUnixTimestamp(toStartOfHour({column})) IN {{starts:Array(UInt32)}}"
    return f"{_between(_FROM, _UNTIL, column)} AND {hour}"


def _minutes() -> str:
    samples = _of_buckets("time")
    # An interval takes an hour at most, and a row of `span_operations` says when the last one of its hour began. A span
    # takes 23 hours at most (gateway/readers/otlp_spans.py).
    spans = select_span_operations(
        samples, _between(f"{_FROM} - 3600", _UNTIL), _between(f"{_FROM} - 86400", f"{_UNTIL} + 3600")
    )
    # What tasks do after the end of their request counts for an hour.
    longest = f"(SELECT intDiv(max(duration_ns), 1000000000) + 1 FROM entry_spans {_of_buckets()})"
    intervals = _between(_FROM, f"{_UNTIL} + toInt64(least(greatest({longest}, 3600), 86400))")
    return " UNION ALL ".join(
        (
            operation_sums.of_samples("toStartOfMinute(time)", spans, samples),
            operation_sums.of_intervals("toStartOfMinute(start_time)", _of_buckets()),
            operation_sums.of_requests(
                "toStartOfMinute(start_time)", operation_sums.requests_from(_of_buckets(), intervals)
            ),
        )
    )


def _coarser(table: str, start: str) -> str:
    """`start`: a function that rounds times."""
    sources = f"WHERE {IN_RANGE} AND build IN {{sources:Array(UInt64)}}"
    return operation_sums.of_rollups(table, f"{start}(start_time)", sources)


def _summed_up(rows: str) -> str:
    return (
        f"SELECT of_type, of, op, toDateTime(at_, 'UTC') AS start_, {MERGED}, {{build:UInt64}} + toHour(start_)"
        f" FROM ({rows}) GROUP BY of_type, of, op, at_"
    )


OPERATION_TABLES: dict[Level, dict[str, str]] = {
    OPERATION_MINUTES: {"operation_minutes": _summed_up(_minutes())},
    OPERATION_HOURS: {"operation_hours": _summed_up(_coarser("operation_minutes", "toStartOfHour"))},
    OPERATION_DAYS: {"operation_days": _summed_up(_coarser("operation_hours", "toStartOfDay"))},
}
"""The table of each level, and the SELECT that fills it; `fill_parameters` has its parameters."""
_TIME_COLUMNS = {"samples": "time", "activity": "start_time", "entry_spans": "start_time"}
_HOURS_WITH_ROWS = " UNION DISTINCT ".join(
    f"SELECT toUnixTimestamp(toStartOfHour({time})) AS hour FROM {table} {_of_buckets(time)} GROUP BY hour"
    for table, time in _TIME_COLUMNS.items()
)


def has_span_names(client: Client) -> bool:
    """Returns whether labels of series name operations, which then need neither activity nor spans."""
    return bool(client.query(f"SELECT {HAS_SPAN_NAMES}").result_rows[0][0])


def hours_with_rows(client: Client, starts: Collection[int]) -> set[int]:
    """Returns those of the buckets of OPERATION_MINUTES with these starts that have anything to sum up.

    ClickHouse takes a tenth of a second to plan the statement that fills a bucket, and most hours of a server with few
    requests have nothing.
    """
    parameters = {"from": min(starts), "until": max(starts) + OPERATION_MINUTES.bucket_s, "starts": sorted(starts)}
    return {int(hour) for (hour,) in client.query(_HOURS_WITH_ROWS, parameters=parameters).result_rows}
