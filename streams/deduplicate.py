"""Nodes and locations are announced once a day; this remembers which were."""

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from streams.identify import Stacks

DAYS = 3
"""Days remembered at a time: hosts whose clocks differ, and batches that come late."""
MAX_IDS = 1_000_000
"""IDs remembered a day and kind, 8 bytes each. Past it all are forgotten, and announced again, which is harmless."""
_DAY_NS = 86_400 * 10**9


class IdSet:
    """A set of uint64 in two sorted arrays: a large one, and a small one that takes what is new until it is merged."""

    def __init__(self, limit: int = MAX_IDS) -> None:
        self._limit = limit
        self._old = self._new = np.empty(0, np.uint64)

    def __len__(self) -> int:
        return len(self._old) + len(self._new)

    def contains(self, ids: np.ndarray) -> np.ndarray:
        """bool, of the shape of `ids`."""
        return _member(self._old, ids) | _member(self._new, ids)

    def add(self, ids: np.ndarray) -> None:
        """Adds distinct IDs that it does not contain."""
        if len(self) + len(ids) > self._limit:
            self._old = self._new = np.empty(0, np.uint64)
        self._new = _merge(self._new, np.sort(ids))
        if len(self._new) > 1024 + len(self._old) // 8:
            self._old, self._new = _merge(self._old, self._new), np.empty(0, np.uint64)


@dataclass
class Day:
    """What was announced on one UTC day."""

    nodes: IdSet = field(default_factory=IdSet)
    locations: IdSet = field(default_factory=IdSet)


@dataclass
class Announced:
    """What was announced, by the UTC day of the samples; one for each partition."""

    days: OrderedDict[int, Day] = field(default_factory=OrderedDict)

    def day(self, unix_nano: int) -> Day:
        """The day of a time; the day that was longest out of use is forgotten for a new one."""
        number = unix_nano // _DAY_NS
        day = self.days.pop(number, None) or Day()
        self.days[number] = day
        if len(self.days) > DAYS:
            self.days.popitem(last=False)
        return day


@dataclass(frozen=True)
class News:
    """What is to be announced of a batch."""

    node_rows: np.ndarray  # int64, rows of Stacks.node_id, each new node once
    location_rows: np.ndarray  # int64, rows of the batch's locations, each new location once
    stacks_new: int


def news(day: Day, depth: np.ndarray, stacks: Stacks, frames: np.ndarray, location_id: np.ndarray) -> News:
    """The nodes and locations of a batch that were not announced that day, and notes them as announced.

    A node is only ever announced with all of its ancestors, so a stack whose leaf is known needs no further look: a
    batch of known stacks costs one look-up a stack.
    """
    none = np.empty(0, np.int64)
    unknown = ~day.nodes.contains(stacks.stack_id) & (depth > 0)
    if not unknown.any():
        return News(none, none, 0)
    rows = np.flatnonzero(np.repeat(unknown, depth))
    node_rows = _first_of_each(stacks.node_id, rows)
    node_rows = node_rows[~day.nodes.contains(stacks.node_id[node_rows])]
    day.nodes.add(stacks.node_id[node_rows])
    used = np.unique(frames[node_rows]).astype(np.int64)
    location_rows = _first_of_each(location_id, used)
    location_rows = location_rows[~day.locations.contains(location_id[location_rows])]
    day.locations.add(location_id[location_rows])
    return News(node_rows, location_rows, int(unknown.sum()))


def _first_of_each(ids: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Of the given rows, the first one of every distinct ID."""
    return rows[np.unique(ids[rows], return_index=True)[1]]


def _member(sorted_ids: np.ndarray, ids: np.ndarray) -> np.ndarray:
    if not len(sorted_ids):
        return np.zeros(ids.shape, dtype=bool)
    places = np.searchsorted(sorted_ids, ids)
    places[places == len(sorted_ids)] = 0
    found: np.ndarray = sorted_ids[places] == ids
    return found


def _merge(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.insert(left, np.searchsorted(left, right), right)
