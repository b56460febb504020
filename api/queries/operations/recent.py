"""What `recent_operations` has of time ranges, and whether it is read instead of rows."""

import time
from collections.abc import Sequence

from api.queries.database import Database
from api.queries.selection.conditions import Conditions
from api.queries.selection.time_range import TimeRange
from icestream.clickhouse.recent_operations import RECENT_NS
from icestream.times import HOUR_NS

OF_REQUESTS = ""
"""The profile type of what is of requests and intervals."""
_S, _MINUTE_NS = 10**9, 60 * 10**9


def recent_conditions(
    ranges: Sequence[TimeRange],
    profile_types: Sequence[str],
    parameters: dict[str, object] | None = None,
    lengths: Sequence[int] = (10,),
) -> Conditions:
    """Conditions on `recent_operations`, for the minutes with any part of one of these time ranges. `lengths`: of the
    rows that are read instead of those of minutes, in minutes, the longest ones first."""
    conditions = Conditions(parameters={} if parameters is None else parameters)
    conditions.add(f"profile_type IN {conditions.bind(list(profile_types), 'Array(String)')}")
    conditions.add_any([part for each in ranges for part in _parts(conditions, in_minutes(each), lengths)])
    return conditions


def _parts(conditions: Conditions, within: TimeRange, lengths: Sequence[int]) -> list[str]:
    """Expressions for the rows of a time range: of the longest length where these are whole, of others before and after
    them."""
    if not lengths:
        return [f"minutes = 1 AND {_within(conditions, within)}"]
    start, end, length_ns = within.start_unix_nano, within.end_unix_nano, lengths[0] * _MINUTE_NS
    first, last = -(-start // length_ns) * length_ns, end // length_ns * length_ns
    if last < end and end > time.time_ns():  # there is no more of this row than the time range has
        last += length_ns
    if first >= last:
        return _parts(conditions, within, lengths[1:])
    edges = [TimeRange(*edge) for edge in ((start, first), (last, end)) if edge[0] < edge[1]]
    return [
        f"minutes = {lengths[0]} AND {_within(conditions, TimeRange(first, last))}",
        *(part for edge in edges for part in _parts(conditions, edge, lengths[1:])),
    ]


def in_minutes(time_range: TimeRange) -> TimeRange:
    """The minutes that have any part of a time range."""
    first, end = time_range.start_unix_nano // _MINUTE_NS, -(-time_range.end_unix_nano // _MINUTE_NS)
    return TimeRange(first * _MINUTE_NS, end * _MINUTE_NS)


def are_many(database: Database, ranges: Sequence[TimeRange], profile_types: Sequence[str] = (OF_REQUESTS,)) -> bool:
    """Whether `recent_operations` has all of these time ranges, with so many requests that their rows are not read.
    Raises ApiError."""
    if any(each.start_unix_nano < time.time_ns() - RECENT_NS for each in ranges):
        return False
    conditions = recent_conditions(ranges, profile_types)
    of_type = f"greatest(sum(traces), sum(requests)) AS of_type FROM recent_operations {conditions.where}"
    answer = database.table(
        f"SELECT max(of_type) AS n FROM (SELECT {of_type} GROUP BY profile_type)", conditions.parameters
    )
    return bool(answer["n"][0].as_py() > database.exact_requests)


def were_replaced(database: Database, ranges: Sequence[TimeRange]) -> bool:
    """Whether a job has replaced rows of these time ranges: then both the old and the new ones are there. Raises
    ApiError."""
    conditions = Conditions(["state != 'added'"])
    hours = [TimeRange(each.start_unix_nano // HOUR_NS * HOUR_NS, each.end_unix_nano) for each in ranges]
    conditions.add_any([_within(conditions, each) for each in hours])
    answer = database.table(f"SELECT count() AS n FROM sample_changes {conditions.where}", conditions.parameters)
    return bool(answer["n"][0].as_py())


def _within(conditions: Conditions, time_range: TimeRange) -> str:
    """An expression that `start_time` is in a time range of whole seconds. Parameters are added."""
    first, end = (
        f"toDateTime({conditions.bind(unix_nano // _S, 'UInt32')}, 'UTC')"
        for unix_nano in (time_range.start_unix_nano, time_range.end_unix_nano)
    )
    return f"start_time >= {first} AND start_time < {end}"
