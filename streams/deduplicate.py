"""Remembers which nodes and locations were announced: each is announced once a day."""

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from icestream import sorted_keys
from icestream.messages.raw import RawColumns
from streams import identify

DAYS = 3
"""Days remembered at a time. More than one, because hosts' clocks differ and batches may come late."""
MAX_IDS = 1_000_000
"""IDs remembered for each day and kind, 8 bytes each. Beyond it, all are forgotten, and announced again."""
_DAY_NS = 86_400 * 10**9


class IdSet:
    """A set of uint64 in two sorted arrays: a large one, and a small one for new IDs, which is merged when it grows."""

    def __init__(self, limit: int = MAX_IDS) -> None:
        self._limit = limit
        self._old = self._new = np.empty(0, np.uint64)

    def __len__(self) -> int:
        return len(self._old) + len(self._new)

    def contains(self, ids: np.ndarray) -> np.ndarray:
        """Returns whether the set has each ID: bool, of the shape of `ids`."""
        member = _member(self._old, ids)
        member |= _member(self._new, ids)
        return member

    def add(self, ids: np.ndarray) -> None:
        """Adds distinct IDs that are not in the set."""
        if len(self) + len(ids) > self._limit:
            self._old = self._new = np.empty(0, np.uint64)
        self._new = _merge(self._new, np.sort(ids))
        if len(self._new) > 1024 + len(self._old) // 8:
            self._old, self._new = _merge(self._old, self._new), np.empty(0, np.uint64)


@dataclass
class Day:
    """The nodes and locations that were announced on one UTC day."""

    nodes: IdSet = field(default_factory=IdSet)
    locations: IdSet = field(default_factory=IdSet)


@dataclass
class Announced:
    """What was announced in one partition, by the UTC day of the samples."""

    days: OrderedDict[int, Day] = field(default_factory=OrderedDict)

    def day(self, unix_nano: int) -> Day:
        """Returns the day of a time. For a new day, the least recently used one is forgotten."""
        number = unix_nano // _DAY_NS
        day = self.days.pop(number, None) or Day()
        self.days[number] = day
        if len(self.days) > DAYS:
            self.days.popitem(last=False)
        return day


@dataclass(frozen=True)
class Announcement:
    """The n nodes of a batch, and the locations, that must be announced."""

    node_id: np.ndarray  # uint64 (n,), each new node once
    node_parent_id: np.ndarray  # uint64 (n,), 0: a root
    node_location_id: np.ndarray  # uint64 (n,), location IDs
    location_rows: np.ndarray  # int64, rows of the batch's locations, each new location once
    stacks: int  # stacks with a new node


def unannounced(day: Day, raw: RawColumns, location_id: np.ndarray, stack_id: np.ndarray) -> Announcement | None:
    """Returns the nodes and locations of a batch that were not announced that day, and notes them as announced.

    None where there are none. A node is always announced together with all its ancestors, so a stack whose leaf was
    announced needs no further check: a batch of known stacks costs one look-up for each stack.
    """
    unknown = np.flatnonzero(~day.nodes.contains(stack_id) & (raw.stack_depth > 0))
    if not len(unknown):
        return None
    nodes = identify.nodes(raw, location_id, unknown)
    rows = _new(day.nodes, nodes.node_id, np.arange(len(nodes.node_id)))
    location_rows = _new(day.locations, location_id, np.unique(nodes.location[rows]))
    node_location_id = location_id[nodes.location[rows]]
    return Announcement(nodes.node_id[rows], nodes.parent[rows], node_location_id, location_rows, len(unknown))


def _new(known: IdSet, ids: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns, of the given rows, the first one of every ID that is not known, and notes those IDs as known."""
    rows = rows[np.unique(ids[rows], return_index=True)[1]]
    rows = rows[~known.contains(ids[rows])]
    known.add(ids[rows])
    return rows


def _member(sorted_ids: np.ndarray, ids: np.ndarray) -> np.ndarray:
    member: np.ndarray = sorted_keys.find(sorted_ids, ids) >= 0
    return member


def _merge(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.insert(left, np.searchsorted(left, right), right)
