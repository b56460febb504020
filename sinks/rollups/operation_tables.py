"""The tables of rollups of operations, and the SELECTs that fill them.

A request belongs to the minute in which it began, a sample to the minute in which it was taken, an interval to the
minute in which it began. So each row is counted once. Hours are summed up from minutes, others from hours.
"""

from collections.abc import Collection

from clickhouse_connect.driver.client import Client

from icestream.clickhouse import operation_sums
from icestream.clickhouse.operation_sums import KEYS, MERGED, SUMS
from icestream.clickhouse.rollups import (
    IN_RANGE,
    OPERATION_DAYS,
    OPERATION_HOURS,
    OPERATION_MINUTES,
    OPERATION_SIX_HOURS,
    Level,
)
from icestream.clickhouse.span_operations import HAS_SPAN_NAMES, select_span_operations
from sinks.clickhouse.cluster import ACROSS_SHARDS

SPANS_AT_ONCE = 2_000_000
"""Up to so many spans are summed up in one statement: it keeps the IDs of all of them in memory, also those of the hour
before, which samples may belong to."""
_CHOSEN_SPANS = 500
"""To divide the spans of an hour, the trace IDs of about so many in SPANS_AT_ONCE are read."""
COLUMNS = ", ".join((*KEYS, "start_time", *SUMS, "build"))
_FROM, _UNTIL = "toInt64({from:UInt32})", "toInt64({until:UInt32})"
OF_TRACES = (
    "trace_id BETWEEN toFixedString(unhex({first_trace:String}), 16) AND toFixedString(unhex({last_trace:String}), 16)"
)
"""The condition of what one statement sums up (`trace_ranges`)."""
SOURCE_TABLES = ("samples", "activity", "entry_spans", "span_operations", "spans")
"""The tables of rows that rollups of operations are summed up from; their partitions are days."""
SETTINGS: dict[str, int | str] = ACROSS_SHARDS | {  # a request may have rows on several shards
    "join_algorithm": "grace_hash",  # an hour may have more requests than memory has room for
    "max_bytes_in_join": 400_000_000,
}

LIMITS: dict[str, int | str] = {
    "max_threads": 2, "max_memory_usage": 2_000_000_000, "max_bytes_before_external_group_by": 400_000_000,
}  # fmt: skip
"""The settings of all statements that sum up rows, so that sinks and queries have room beside them."""


def between(first_s: str, until_s: str, column: str = "start_time") -> str:
    """WHERE ... of rows in [first, until), SQL expressions of Unix seconds."""
    return (
        f"WHERE {column} >= fromUnixTimestamp64Milli(({first_s}) * 1000, 'UTC')"
        f" AND {column} < fromUnixTimestamp64Milli(({until_s}) * 1000, 'UTC')"
    )


def _of_buckets(column: str = "start_time") -> str:
    hour = f"toUnixTimestamp(toStartOfHour({column})) IN {{starts:Array(UInt32)}}"
    return f"{between(_FROM, _UNTIL, column)} AND {hour}"


def _minutes() -> str:
    samples = f"{_of_buckets('time')} AND {OF_TRACES}"
    # An interval takes an hour at most, and a row of `span_operations` says when the last one of its hour began. A span
    # takes 23 hours at most (gateway/readers/otlp_spans.py).
    active = f"{between(f'{_FROM} - 3600', _UNTIL)} AND {OF_TRACES}"
    reported = f"{between(f'{_FROM} - 86400', f'{_UNTIL} + 3600')} AND {OF_TRACES}"
    spans = select_span_operations(samples, active, reported)
    began = f"{_of_buckets()} AND {OF_TRACES}"
    # What tasks do after the end of their request counts for an hour.
    longest = f"(SELECT intDiv(max(duration_ns), 1000000000) + 1 FROM entry_spans {_of_buckets()})"
    ended = between(_FROM, f"{_UNTIL} + toInt64(least(greatest({longest}, 3600), 86400))")
    requests = operation_sums.requests_from(began, f"{ended} AND {OF_TRACES}")
    return " UNION ALL ".join(
        (
            operation_sums.of_samples("toStartOfMinute(time)", spans, samples),
            operation_sums.of_intervals("toStartOfMinute(start_time)", began),
            operation_sums.of_requests("toStartOfMinute(start_time)", requests),
        )
    )


def _coarser(table: str, start: str) -> str:
    """`start`: an expression of the bucket of `start_time`."""
    sources = f"WHERE {IN_RANGE} AND build IN {{sources:Array(UInt64)}}"
    return operation_sums.of_rollups(table, start, sources)


def _summed_up(rows: str) -> str:
    keys = ", ".join(KEYS.values())
    return (
        f"SELECT {keys}, toDateTime(at_, 'UTC') AS start_, {MERGED}, {{build:UInt64}} + toHour(start_)"
        f" FROM ({rows}) GROUP BY {keys}, at_"
    )


OPERATION_TABLES: dict[Level, dict[str, str]] = {
    OPERATION_MINUTES: {"operation_minutes": _summed_up(_minutes())},
    OPERATION_HOURS: {"operation_hours": _summed_up(_coarser("operation_minutes", "toStartOfHour(start_time)"))},
    OPERATION_SIX_HOURS: {
        "operation_six_hours": _summed_up(_coarser("operation_hours", "toStartOfInterval(start_time, INTERVAL 6 HOUR)"))
    },
    OPERATION_DAYS: {"operation_days": _summed_up(_coarser("operation_hours", "toStartOfDay(start_time)"))},
}
"""The table of each level, and the SELECT that fills it. Its parameters are those of `fill_parameters`, and `sources`
or those of `trace_ranges`."""
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


def trace_ranges(client: Client, start: int, length_s: int = OPERATION_MINUTES.bucket_s) -> list[dict[str, str]]:
    """Returns ranges of trace IDs, as parameters, that together have all of them: one statement for each fills a bucket
    of OPERATION_MINUTES. Traces do not depend on each other, and every
    reader adds up the rows of one minute and operation.

    There are more than one if the time that begins at `start`, in Unix seconds, has more than SPANS_AT_ONCE spans; each
    has about as many. Rows of intervals and spans are in the order of their traces, so they are read for one range
    each. Those of other tables are read for all.
    """
    start_s = "toInt64({start:UInt32})"
    end_s = f"{start_s} + {length_s}"
    active = f"SELECT trace_id, span_id FROM span_operations {between(f'{start_s} - 3600', end_s)}"
    spans = f"({active} UNION ALL SELECT trace_id, span_id FROM entry_spans {between(start_s, end_s)})"
    parameters = {"start": start, "of": max(SPANS_AT_ONCE // _CHOSEN_SPANS, 1)}
    ranges = -(-client.query(f"SELECT count() FROM {spans}", parameters=parameters).result_rows[0][0] // SPANS_AT_ONCE)
    firsts = [0]
    if ranges > 1:
        chosen = f"SELECT hex(trace_id) FROM {spans} WHERE cityHash64(trace_id, span_id) % {{of:UInt32}} = 0"
        ids = sorted(int(row[0], 16) for row in client.query(chosen, parameters=parameters).result_rows)
        firsts = sorted({0, *(ids[len(ids) * number // ranges] for number in range(1, ranges) if ids)})
    lasts = [first - 1 for first in firsts[1:]] + [2**128 - 1]
    return [
        {"first_trace": f"{first:032x}", "last_trace": f"{last:032x}"}
        for first, last in zip(firsts, lasts, strict=True)
    ]
