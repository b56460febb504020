"""Bounds how many executable ranges of a process are known.

JITs that allocate page by page make tens of thousands. So ranges of memory without a file are joined, over the smallest
gaps between them, where no code runs. Files stay as they are.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

MAX_RANGES = 1 << 12
"""The most ranges of one process. The eBPF program could find one among 2^14; fewer, so that no process fills its
map."""
T = TypeVar("T")


class NamedRange(NamedTuple):
    start: int
    end: int
    name: str | bytes  # of the file, or of the memory
    joins: bool  # whether it may be joined with one of the same name


def limited(ranges: Sequence[T], describe: Callable[[T], NamedRange], join: Callable[[T, T], T], most: int) -> list[T]:
    """Returns at most so many of the ranges, which are sorted by address. `join` makes one of two and what is between.
    If there are still too many, those of files that have few come first."""
    if len(ranges) <= most:
        return list(ranges)
    described = [describe(each) for each in ranges]
    names = dict[str | bytes, int]()
    name = np.array([names.setdefault(each.name, len(names)) for each in described])
    joins = np.array([each.joins for each in described])
    start, end = (np.array([each[i] for each in described], np.uint64) for i in range(2))
    joining = np.flatnonzero(joins[1:] & joins[:-1] & (name[1:] == name[:-1]))
    gaps = start[joining + 1] - end[joining]
    begins = np.ones(len(ranges), bool)
    begins[joining[np.argsort(gaps, kind="stable")[: len(ranges) - most]] + 1] = False
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(ranges)) - 1
    count = np.bincount(name[first])[name[first]]
    kept = np.sort(np.lexsort((count, joins[first]))[:most])
    rows = zip(first[kept].tolist(), last[kept].tolist(), strict=True)
    return [join(ranges[low], ranges[high]) if low < high else ranges[low] for low, high in rows]
