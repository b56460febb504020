"""The operations of two sides of a comparison, in times that do not overlap by rounding."""

from dataclasses import replace

from api.errors import bad_request
from api.queries.database import Database
from api.queries.operations.operations import Operations, read_operations, whole_range
from api.queries.selection.selection import Selection
from api.queries.selection.time_range import TimeRange


def read_two_sides(database: Database, now: Selection, before: Selection) -> tuple[Operations, Operations]:
    """Each in whole minutes, as operations are; what both would have by that is left out of both. Raises ApiError."""
    ranges = (now.time_range, before.time_range)
    if now.time_range.start_unix_nano >= before.time_range.end_unix_nano:
        ranges = _apart(before.time_range, now.time_range)[::-1]
    elif before.time_range.start_unix_nano >= now.time_range.end_unix_nano:
        ranges = _apart(now.time_range, before.time_range)
    of_now, of_before = (
        read_operations(database, replace(side, time_range=each))
        for side, each in zip((now, before), ranges, strict=True)
    )
    return of_now, of_before


def _apart(earlier: TimeRange, later: TimeRange) -> tuple[TimeRange, TimeRange]:
    end, start = whole_range(earlier).end_unix_nano, whole_range(later).start_unix_nano
    if end <= start:
        return earlier, later
    if earlier.start_unix_nano >= start or later.end_unix_nano <= end:
        raise bad_request(
            "bad_time", "the two time ranges are in the same minute", "operations are compared in whole minutes"
        )
    return TimeRange(earlier.start_unix_nano, start), TimeRange(end, later.end_unix_nano)
