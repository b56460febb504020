"""Areas of addresses, each with a value. A later area replaces the parts of earlier ones that it covers."""

from typing import NamedTuple

import numpy as np

from icestream.columns import address_ranges, index_ranges, sorted_keys


class Areas(NamedTuple):
    """Disjoint areas [start, end), sorted by address."""

    start: np.ndarray  # uint64 (n,)
    end: np.ndarray  # uint64 (n,)
    value: np.ndarray  # uint32 (n,)

    def find(self, addresses: np.ndarray) -> np.ndarray:
        """The value (int64) at each address (uint64); -1 where no area covers it."""
        if not len(self.start):
            return np.full(len(addresses), -1, np.int64)
        row = address_ranges.find(self.start, self.end, addresses)
        return np.where(row >= 0, self.value[row].astype(np.int64), -1)


NONE = Areas(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.uint32))


def paint(start: np.ndarray, end: np.ndarray, value: np.ndarray) -> Areas:
    """Areas (none empty) in the order in which they came. Takes O(n log n), however they overlap."""
    order = np.argsort(start, kind="stable")
    if len(order) and not (start[order][1:] >= end[order][:-1]).all():
        return _paint_overlapping(start, end, value)
    return Areas(start[order], end[order], value[order])


def over(old: Areas, new: Areas) -> Areas:
    """`old` with `new` on top."""
    if not len(old.start) or not len(new.start):
        return new if len(new.start) else old
    first = np.searchsorted(new.end, old.start, side="right")  # of the new ones that overlap each old one
    count = np.searchsorted(new.start, old.end, side="left") - first
    untouched, cut = count == 0, np.flatnonzero(count)
    # What is left of an old area with k new ones on it: the k + 1 gaps before, between and behind them.
    gaps = count[cut] + 1
    of = np.repeat(cut, gaps)
    index = index_ranges.expand(first[cut], gaps)
    last_gap, first_gap = index == first[of] + count[of], index == first[of]
    starts = np.where(first_gap, old.start[of], new.end[np.maximum(index, 1) - 1])
    ends = np.where(last_gap, old.end[of], new.start[np.minimum(index, len(new.start) - 1)])
    left = starts < ends
    start = np.concatenate([old.start[untouched], starts[left], new.start])
    order = np.argsort(start, kind="stable")
    return Areas(
        start[order],
        np.concatenate([old.end[untouched], ends[left], new.end])[order],
        np.concatenate([old.value[untouched], old.value[of[left]], new.value])[order],
    )


def _paint_overlapping(start: np.ndarray, end: np.ndarray, value: np.ndarray) -> Areas:
    """Between two bounds next to each other the latest area counts. Each area is noted as two spans of 2^k such pieces;
    spans are then halved until each is one piece."""
    bounds = sorted_keys.distinct(np.concatenate([start, end]))
    first, last = np.searchsorted(bounds, start), np.searchsorted(bounds, end)
    power = np.frexp((last - first).astype(np.float64))[1] - 1
    rank = np.arange(len(start))
    top = np.full(len(bounds), -1, np.int64)
    for k in range(int(power.max()), -1, -1):
        of_power = power == k
        np.maximum.at(top, first[of_power], rank[of_power])
        np.maximum.at(top, last[of_power] - (1 << k), rank[of_power])
        if k:
            half, halved = 1 << (k - 1), top.copy()
            np.maximum(halved[half:], top[:-half], out=halved[half:])
            top = halved
    pieces = np.flatnonzero(top[:-1] >= 0)
    joined = np.append(False, (top[pieces][1:] == top[pieces][:-1]) & (pieces[1:] == pieces[:-1] + 1))
    begin = np.flatnonzero(~joined)
    end_piece = pieces[np.append(begin[1:], len(pieces)) - 1]
    return Areas(bounds[pieces[begin]], bounds[end_piece + 1], value[top[pieces[begin]]])
