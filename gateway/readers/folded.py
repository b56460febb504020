"""Reads stacks as text ("folded" or "collapsed": a;b;c 12, as github.com/brendangregg/FlameGraph has them)."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from gateway.errors import bad_profile
from gateway.labels import host_id
from gateway.profile_types import ValueType, profile_type
from gateway.readers.location_table import LocationTable, SentLine, sent_line
from gateway.readers.pprof import Source
from gateway.readers.stack_table import SampleLists, StackTable
from gateway.sent_profile import SentProfile, Values

_MAX_VALUE = 2**62

Weighted = tuple[Sequence[int], int]
"""A stack, which is rows of lines, root first; and its value."""


def read_folded(data: bytes, source: Source, kind: ValueType, scale: int, counted: bool = True) -> SentProfile:
    """Reads lines of a stack and its value, which is multiplied with `scale`; if not `counted`, each line is a stack
    seen once. Raises Refused."""
    dropped = Counter(source.dropped)
    return weighted_profile(*_read(data, counted, dropped), data, source, kind, scale, dropped)


def _read(data: bytes, counted: bool, dropped: Counter[str]) -> tuple[list[SentLine], list[Weighted]]:
    names: dict[str, int] = {}
    stacks: list[Weighted] = []
    for number, line in enumerate(data.decode(errors="replace").split("\n"), 1):
        if not line.strip():
            continue
        stack, _, count = line.strip().rpartition(" ") if counted else (line.strip(), "", "1")
        if not stack or not count.isdecimal() or len(count) > 18:
            raise bad_profile(f"line {number}: expected a stack and a number, as in main;work 12, got {line[:80]!r}")
        stacks.append(([names.setdefault(name, len(names)) for name in stack.split(";") if name], int(count)))
    return [sent_line(name, "", 0, 0, dropped) for name in names], stacks


def weighted_profile(
    lines: Sequence[SentLine], stacks: Iterable[Weighted], data: bytes, source: Source, kind: ValueType, scale: int,
    dropped: Counter[str],
) -> SentProfile:  # fmt: skip
    """Makes stacks into a profile; `data` is what they were read from, and `dropped` what of it was not taken. Raises
    Refused."""
    table, locations, rows, values = StackTable(1), LocationTable(), SampleLists(), []
    location = [locations.location("", "", 0, [line]) for line in lines]
    series = table.series(source.labels)
    start = source.start_unix_nano or time.time_ns()
    for stack, value in stacks:
        if not 0 <= value * scale <= _MAX_VALUE:
            raise bad_profile(f"expected values from 0 to {_MAX_VALUE // scale}, got {value}")
        rows.add(start, series, 0, 0, table.stack(tuple([location[line] for line in reversed(stack)])), 0)
        values.append(value * scale)
    counts = np.array(values, np.int64) // scale if scale > 1 else None
    return SentProfile(
        window=table.window(start, max(source.end_unix_nano, start + 1), rows.columns(), table.stacks(locations.all())),
        values=[Values(profile_type(source.name, kind, kind), scale, np.array(values, np.int64), counts)],
        host_id=host_id(source.labels),
        identity=data if source.start_unix_nano else b"",
        dropped=dropped + table.dropped,
    )
