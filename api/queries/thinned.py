"""The requests of days that were thinned: which of them are still there (sinks/thin_requests.py)."""

import time

from api.queries.conditions import Conditions
from api.queries.database import Database
from api.queries.time_range import TimeRange
from icestream.thinning import IS_SAMPLED, THINNED_DAYS, kept_traces
from icestream.times import DAY_NS, format_unix_nano


def thinned_until(database: Database, time_range: TimeRange) -> int | None:
    """Returns the end of the last thinned day that the time range reaches into, in Unix nanoseconds, if there is one.
    Raises ApiError."""
    if time_range.start_unix_nano > time.time_ns() - DAY_NS:
        return None
    days = Conditions()
    _add_days(days, time_range)
    answer = database.table(
        f"SELECT toUnixTimestamp(toDateTime(max(day), 'UTC')) AS last, count() AS n FROM thinned_days {days.where}"
        f" AND day IN ({THINNED_DAYS})",
        days.parameters,
    )
    return answer["last"][0].as_py() * 10**9 + DAY_NS if answer["n"][0].as_py() else None


def thinned_json(until: int | None) -> dict[str, str | None]:
    """What answers say of `thinned_until`."""
    return {"thinned_until": None if until is None else format_unix_nano(until)}


def add_kept(conditions: Conditions, time_range: TimeRange, time_column: str) -> None:
    """Adds that rows are of days that are not thinned, or of traces that are kept. Others may have lost some of their
    rows."""
    near = TimeRange(max(time_range.start_unix_nano - DAY_NS, 0), time_range.end_unix_nano + DAY_NS)
    days = Conditions(parameters=conditions.parameters)
    _add_days(days, near)
    kept = kept_traces(" AND ".join(days.expressions))
    conditions.add(f"(toDate({time_column}) NOT IN ({THINNED_DAYS}) OR {kept})")


def add_drawn(conditions: Conditions) -> None:
    """Adds that requests (rows of `entry_spans`) are of days or operations that are not thinned, or were kept without
    regard to their CPU and duration. So their percentiles are those of all requests, but for chance."""
    conditions.add(
        f"({IS_SAMPLED} OR toDate(start_time) NOT IN ({THINNED_DAYS}) OR"
        " (toDate(start_time), toString(service), toString(operation)) NOT IN"
        " (SELECT day, toString(service), toString(operation) FROM thinned_operations))"
    )


def is_thinned(database: Database, trace_id: str, unix_nano: int) -> bool:
    """Whether rows of a trace may be gone that has some at this moment. Raises ApiError."""
    moment = TimeRange(unix_nano, unix_nano + 1)
    if thinned_until(database, moment) is None:
        return False
    conditions = Conditions()
    conditions.add(f"trace_id = {conditions.bind_trace_id(trace_id)}")
    add_kept(conditions, moment, "time")
    at = conditions.bind(unix_nano // 10**6, "Int64")
    row = f"SELECT {conditions.bind_trace_id(trace_id)} AS trace_id, fromUnixTimestamp64Milli({at}, 'UTC') AS time"
    answer = database.table(f"SELECT count() AS kept FROM ({row}) {conditions.where}", conditions.parameters)
    return not answer["kept"][0].as_py()


def _add_days(conditions: Conditions, time_range: TimeRange) -> None:
    for comparison, unix_nano in ((">=", time_range.start_unix_nano), ("<=", time_range.end_unix_nano - 1)):
        conditions.add(f"toUInt16(day) {comparison} {conditions.bind(unix_nano // DAY_NS, 'UInt64')}")
