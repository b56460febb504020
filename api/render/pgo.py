"""Profiles for `go build -pgo`: pprof (api/render/pprof.py) with nothing but Go's functions and lines.

The compiler reads from a profile which lines call which functions, as distances from the function's first line. So
stacks are joined that differ in their addresses only, as those of several builds do. A function may begin at another
line in each build: all of its lines are told as those of one of the builds, at the same distance.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from icestream.pprof.profile_pb2 import Function, Line, Profile

FILE_NAME = "default.pgo"
"""What `go build` looks for beside a main package."""

_GO_SOURCES = (".go", ".s")
Lines = tuple[tuple[int, int], ...]
"""Function ID and line number of each frame of a location, innermost first."""


@dataclass
class _Source:
    """The tables of a profile by ID, as far as they are of Go."""

    strings: list[str]
    functions: dict[int, Function] = field(default_factory=dict)
    lines: dict[int, Lines] = field(default_factory=dict)
    """The lines of each location. If several functions differ in their first line only, lines refer to the first
    one."""


def pgo(pieces: Iterable[Profile], keep: int = 0, aggregate_callees: bool = False) -> Profile | None:
    """The profile of which these are the parts, with Go's frames only; None if it has none. `keep`: how many innermost
    locations of a stack are kept; 0: all. `aggregate_callees`: the innermost line of a stack is 0, so stacks that
    differ in it only are one."""
    whole = Profile()
    for piece in pieces:
        whole.MergeFrom(piece)
    source = _go_only(whole)
    sums: dict[tuple[Lines, ...], list[int]] = {}
    for sample in whole.sample:
        stack = tuple(lines for each in sample.location_id if (lines := source.lines.get(each)))
        stack = stack[:keep] if keep else stack
        if stack and aggregate_callees:
            ((function_id, _), *callers), *outer = stack
            stack = (((function_id, 0), *callers), *outer)
        if stack:
            values = sums.setdefault(stack, [0] * len(sample.value))
            sums[stack] = [before + value for before, value in zip(values, sample.value, strict=True)]
    return _profile(whole, source, sums) if sums else None


def _go_only(whole: Profile) -> _Source:
    """Functions with a source file of Go and a first line, and the locations that have some of them."""
    source = _Source(list(whole.string_table))
    first: dict[tuple[int, int], Function] = {}  # by name and file
    for function in whole.function:
        if function.start_line and source.strings[function.filename].endswith(_GO_SOURCES):
            source.functions[function.id] = function
            first.setdefault((function.name, function.filename), function)

    def moved(line: Line) -> tuple[int, int]:
        function = source.functions[line.function_id]
        to = first[function.name, function.filename]
        return to.id, line.line + to.start_line - function.start_line if line.line else 0

    for location in whole.location:
        lines = tuple(moved(each) for each in location.line if each.function_id in source.functions)
        if lines:
            source.lines[location.id] = lines
    return source


def _profile(whole: Profile, source: _Source, sums: dict[tuple[Lines, ...], list[int]]) -> Profile:
    profile = Profile(
        sample_type=whole.sample_type,
        default_sample_type=whole.default_sample_type,
        period_type=whole.period_type,
        period=whole.period,
        time_nanos=whole.time_nanos,
        duration_nanos=whole.duration_nanos,
        string_table=source.strings,
    )
    location_ids: dict[Lines, int] = {}
    for stack, values in sums.items():
        ids = [location_ids.setdefault(lines, len(location_ids) + 1) for lines in stack]
        profile.sample.add(location_id=ids, value=values)
    for lines, location_id in location_ids.items():
        location = profile.location.add(id=location_id)
        for function_id, line in lines:
            location.line.add(function_id=function_id, line=line)
    for function_id in {function_id for lines in location_ids for function_id, _ in lines}:
        profile.function.add().CopyFrom(source.functions[function_id])
    return profile
