"""The requests of days that were thinned: which of them are still there (sinks/requests/thin_requests.py)."""

import time
from collections.abc import Iterable

from api.queries.database import Database
from api.queries.selection.conditions import Conditions, add_value_matcher
from api.queries.selection.selector import Matcher
from api.queries.selection.time_range import TimeRange
from icestream.clickhouse.thinning import IS_SAMPLED, THINNED_DAYS, kept_traces
from icestream.times import DAY_NS, format_unix_nano

_SERVICES = "SELECT arrayJoin([day, day + 1]), toString(service) FROM thinned_operations"
"""The days on which rows of services may be gone. Requests may go on after midnight."""


def thinned_until(database: Database, time_range: TimeRange, matchers: Iterable[Matcher] = ()) -> int | None:
    """Returns the end of the last day in a time range on which operations were thinned, in Unix nanoseconds, if there
    is one. Only the matchers of service and operation count. Raises ApiError."""
    if time_range.start_unix_nano > time.time_ns() - DAY_NS:
        return None
    conditions = Conditions()
    _add_days(conditions, time_range)
    for matcher in matchers:
        if matcher.label in ("service", "operation"):
            add_value_matcher(conditions, matcher.label, matcher)
    answer = database.table(
        f"SELECT max(toUInt32(day)) AS last, count() AS n FROM thinned_operations {conditions.where}"
        f" AND day IN ({THINNED_DAYS})",
        conditions.parameters,
    )
    return (answer["last"][0].as_py() + 1) * DAY_NS if answer["n"][0].as_py() else None


def thinned_json(until: int | None) -> dict[str, str | None]:
    """What answers say of `thinned_until`."""
    return {"thinned_until": None if until is None else format_unix_nano(until)}


def add_kept(conditions: Conditions, time_range: TimeRange, time_column: str) -> None:
    """Adds that rows are of days or services that are not thinned, or of traces that are kept. Others may have lost
    some of their rows."""
    day = f"toDate({time_column})"
    thinned = f"{day} IN ({THINNED_DAYS}) AND ({day}, toString(service)) IN ({_SERVICES})"
    conditions.add(f"(NOT ({thinned}) OR {_kept(conditions, time_range)})")


def add_drawn(conditions: Conditions) -> None:
    """Adds that requests were kept without regard to their CPU and duration. So their percentiles are those of all
    requests, but for chance."""
    conditions.add(IS_SAMPLED)


def is_thinned(database: Database, trace_id: str, services: list[str], time_range: TimeRange) -> bool:
    """Whether rows of a trace may be gone that has some of these services in a time range. Raises ApiError."""
    if thinned_until(database, time_range) is None:
        return False
    conditions = Conditions()
    _add_days(conditions, time_range)
    conditions.add(f"day IN ({THINNED_DAYS})")
    conditions.add(f"(day, service) IN ({_SERVICES})")
    conditions.add(f"NOT {_kept(conditions, time_range)}")
    trace, of = conditions.bind_trace_id(trace_id), conditions.bind(services, "Array(String)")
    days = f"SELECT day, arrayJoin({of}) AS service, {trace} AS trace_id FROM thinned_days"
    answer = database.table(f"SELECT count() AS n FROM ({days}) {conditions.where}", conditions.parameters)
    return bool(answer["n"][0].as_py())


def _kept(conditions: Conditions, time_range: TimeRange) -> str:
    near = Conditions(parameters=conditions.parameters)
    _add_days(near, TimeRange(max(time_range.start_unix_nano - DAY_NS, 0), time_range.end_unix_nano + DAY_NS))
    return kept_traces(" AND ".join(near.expressions))


def _add_days(conditions: Conditions, time_range: TimeRange) -> None:
    for comparison, unix_nano in ((">=", time_range.start_unix_nano), ("<=", time_range.end_unix_nano - 1)):
        conditions.add(f"toUInt32(day) {comparison} {conditions.bind(unix_nano // DAY_NS, 'UInt64')}")
