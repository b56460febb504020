"""Which rollups answer a query, and for which times it reads samples instead.

Rollups are read where they are valid, for whole buckets. Samples are read everywhere else: at the edges of a time
range, in hours that are not closed yet, and where samples have changed since. Where samples may be gone (the build is
final), a bucket that reaches out of the range is read as a whole: the answer says so (`rollups`).
"""

import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow.compute as pc

from api.queries.database import Database
from api.queries.selection.conditions import Conditions, add_matchers
from api.queries.selection.selection import Selection
from api.queries.selection.time_range import TimeRange
from icestream.clickhouse.rollups import (
    BUILDS_SQL,
    CHANGED_HOURS_SQL,
    DAY_S,
    DAYS,
    GAUGE_DAYS,
    HOUR_S,
    HOURS,
    Level,
    bucket_parameters,
    valid_builds,
)
from icestream.times import format_unix_nano

_S = 10**9
_MINUTE_NS = 60 * _S
Range = tuple[int, int]
"""[start, end) in Unix nanoseconds."""


@dataclass(frozen=True)
class BuiltBucket:
    """A bucket with a build to read."""

    start_unix_nano: int
    end_unix_nano: int
    build: int
    final: bool

    @property
    def hours(self) -> range:
        """When its hours begin."""
        return range(self.start_unix_nano, self.end_unix_nano, HOUR_S * _S)


@dataclass(frozen=True)
class LevelBuckets:
    """What a query reads of one level."""

    level: Level
    buckets: list[BuiltBucket]

    def conditions(self, selection: Selection, parameters: dict[str, Any]) -> Conditions:
        """Conditions on a table of the level; of hours that reach out of the time range, only the minutes in it."""
        conditions = Conditions(parameters=parameters)
        profile_type = conditions.bind(selection.profile_type, "String")
        # What is of requests has no profile type.
        if_of_requests = f"IN ({profile_type}, '')"
        conditions.add(f"profile_type {if_of_requests if self.level.of_operations else f'= {profile_type}'}")
        self.add_to(conditions, selection.time_range)
        add_matchers(conditions, selection.matchers)
        return conditions

    def add_to(self, conditions: Conditions, time_range: TimeRange) -> None:
        """Adds that rows are of these buckets; of hours that reach out of the time range, only the minutes in it."""
        times = []
        for start, end in self._ranges():
            first, last = start // _S, end // _S
            if self.level.unit == "minute":
                first = max(first, time_range.start_unix_nano // _MINUTE_NS * 60)
                last = min(last, -(-time_range.end_unix_nano // _S))
            since, until = (f"toDateTime({conditions.bind(unix_s, 'UInt32')}, 'UTC')" for unix_s in (first, last))
            times.append(f"start_time >= {since} AND start_time < {until}")
        conditions.add_any(times)
        conditions.add(f"build IN {conditions.bind([each.build for each in self.buckets], 'Array(UInt64)')}")

    def _ranges(self) -> list[Range]:
        """The time ranges of these buckets, without the longest one between them: coarser ones are read there."""
        start, end = self.buckets[0].start_unix_nano, self.buckets[-1].end_unix_nano
        between = [(one.end_unix_nano, other.start_unix_nano) for one, other in pairwise(self.buckets)]
        gap = max(between, key=lambda gap: gap[1] - gap[0], default=(end, end))
        return [(start, end)] if gap[0] == gap[1] else [(start, gap[0]), (gap[1], end)]

    def as_json(self) -> dict[str, Any]:
        return {
            "level": self.level.unit,
            "buckets": len(self.buckets),
            "start": format_unix_nano(self.buckets[0].start_unix_nano),
            "end": format_unix_nano(self.buckets[-1].end_unix_nano),
        }


@dataclass(frozen=True)
class ReadPlan:
    """What a query reads: each moment of its time range from one place."""

    parts: list[LevelBuckets] = field(default_factory=list)
    samples: list[TimeRange] = field(default_factory=list)

    def as_json(self) -> list[dict[str, Any]]:
        return [part.as_json() for part in self.parts]


def make_plan(
    database: Database,
    time_range: TimeRange,
    levels: Sequence[Level],
    coarser: Sequence[Level] = (),
    finer: Sequence[Level] = (),
    buckets: Mapping[Level, list[BuiltBucket]] | None = None,
) -> ReadPlan:
    """`levels`: those that can answer the query, the best one first; `coarser`: others, which it reads only where
    samples may be gone; `finer`: others, which it reads for what is left of a time range of whole minutes; `buckets`:
    at least those of the time range and all of these levels. Raises ApiError."""
    gaps: list[Range] = [(time_range.start_unix_nano, time_range.end_unix_nano)]
    if not finer and not _may_have_buckets(database, time_range, levels, coarser):
        return ReadPlan([], [time_range])
    all_levels = (*levels, *coarser, *finer)
    found = read_buckets(database, time_range, all_levels) if buckets is None else buckets
    taken: dict[Level, list[BuiltBucket]] = {}
    for level in all_levels:
        taken[level], gaps = _take(found[level] if level in levels else [], gaps, whole=True)
    for level in (*finer, *sorted((*levels, *coarser), key=lambda level: level.bucket_s)):
        hours = {hour for buckets in taken.values() for each in buckets for hour in each.hours}
        # A bucket of which hours were taken would count these twice.
        usable = [each for each in found[level] if (each.final or level in finer) and hours.isdisjoint(each.hours)]
        widened, gaps = _take(usable, gaps, whole=False)
        taken[level] = sorted(taken[level] + widened, key=lambda each: each.start_unix_nano)
    return ReadPlan(
        [LevelBuckets(level, each) for level, each in taken.items() if each], [TimeRange(*gap) for gap in gaps]
    )


def stack_sources(plan: ReadPlan, selection: Selection, by_service: bool) -> list[tuple[str, Conditions]]:
    """Tables with stacks, and conditions. Each selected row fulfils exactly one; they share their parameters."""
    parameters: dict[str, Any] = {}
    sources = [(_STACKS[by_service, part.level], part.conditions(selection, parameters)) for part in plan.parts]
    if plan.samples:
        sources += [("samples", each) for each in selection.alternatives(plan.samples, parameters)]
    return sources


def stack_levels(selection: Selection, by_service: bool) -> list[Level]:
    """The levels that have a table of stacks for a selection: `by_service`, also those without series."""
    if selection.by_request:
        return []
    if selection.is_gauge:
        return [GAUGE_DAYS]
    return [level for level in (DAYS, HOURS) if (by_service, level) in _STACKS]


_STACKS = {
    (True, DAYS): "service_stack_days",
    (True, HOURS): "service_stack_hours",
    (False, DAYS): "series_stack_days",
}
"""Whether the selector has matchers of the service only, and the level."""


def _may_have_buckets(
    database: Database, time_range: TimeRange, levels: Sequence[Level], coarser: Sequence[Level]
) -> bool:
    """Whether a whole bucket of `levels` lies in the range, or samples of some level's buckets may be gone there.

    So queries of short ranges need not ask which builds are valid.
    """
    start, end = time_range.start_unix_nano, time_range.end_unix_nano
    if any(end // (each.bucket_s * _S) > -(-start // (each.bucket_s * _S)) for each in levels):
        return True
    return bool(levels or coarser) and start < _final_until(database, time_range)


def _final_until(database: Database, time_range: TimeRange) -> int:
    """Returns the end of the newest final build, in Unix nanoseconds, or 0. All samples after it are there."""
    if time_range.start_unix_nano >= time.time_ns() - DAY_S * _S:
        return 0
    answer = database.table("SELECT toUInt32(max(end_time)) AS until FROM rollup_builds WHERE state = 'final'")
    return int(answer["until"][0].as_py()) * _S


def read_buckets(database: Database, time_range: TimeRange, levels: Sequence[Level]) -> dict[Level, list[BuiltBucket]]:
    """Returns the buckets with a valid build of each level that lie in a time range or reach into it, in order. Raises
    ApiError."""
    longest = max(levels, key=lambda level: level.bucket_s)
    parameters = bucket_parameters(longest, time_range.start_unix_nano // _S, -(-time_range.end_unix_nano // _S))
    # In two questions: a join of both tables takes more CPU than both.
    answer = database.table(BUILDS_SQL, parameters)
    hours = database.table(CHANGED_HOURS_SQL, parameters)
    changes = dict(zip(*(hours[name].to_numpy().tolist() for name in ("start", "changes")), strict=True))
    found: dict[Level, list[BuiltBucket]] = {}
    for level in levels:
        of_level = answer.filter(pc.equal(answer["level"], level.name.encode()))
        columns = (of_level[name].to_numpy().tolist() for name in ("start", "build", "final", "changes"))
        valid = valid_builds(zip(*columns, strict=True), changes, level)
        found[level] = [
            BuiltBucket(start * _S, (start + level.bucket_s) * _S, build.number, build.final)
            for start, build in valid.items()
        ]
    return found


def _take(buckets: list[BuiltBucket], gaps: list[Range], whole: bool) -> tuple[list[BuiltBucket], list[Range]]:
    """Returns the buckets that lie in gaps, and the gaps that remain. Not `whole`: those that reach into gaps."""
    starts = [each.start_unix_nano for each in buckets]
    taken: dict[int, BuiltBucket] = {}
    remaining: list[Range] = []
    for start, end in gaps:
        at, row = start, bisect_left(starts, start)
        if not whole and row and buckets[row - 1].end_unix_nano > start:
            row -= 1
        while row < len(buckets) and starts[row] < end:
            each = buckets[row]
            if not whole or each.end_unix_nano <= end:
                taken[each.start_unix_nano] = each
                if starts[row] > at:
                    remaining.append((at, starts[row]))
                at = each.end_unix_nano
            row += 1
        if at < end:
            remaining.append((at, end))
    return list(taken.values()), remaining
