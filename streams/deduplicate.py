"""Remembers which nodes and locations were announced: each is announced once a day."""

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from icestream.messages.raw import RawColumns
from icestream.recent_keys import RecentIds
from icestream.times import DAY_NS
from streams import identify

DAYS = 3
"""Days remembered at a time. More than one, because hosts' clocks differ and batches may come late."""
MAX_IDS = 1_000_000
"""IDs remembered for each day and kind, 9 bytes each. Forgotten ones are announced again."""


@dataclass
class Day:
    """The nodes and locations that were announced on one UTC day."""

    nodes: RecentIds = field(default_factory=lambda: RecentIds(MAX_IDS))
    locations: RecentIds = field(default_factory=lambda: RecentIds(MAX_IDS))


@dataclass
class Announced:
    """What was announced in one partition, by the UTC day of the samples."""

    days: OrderedDict[int, Day] = field(default_factory=OrderedDict)

    def day(self, unix_nano: int) -> Day:
        """Returns the day of a time. For a new day, the least recently used one is forgotten."""
        number = unix_nano // DAY_NS
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


def unannounced(day: Day, raw: RawColumns, location_id: np.ndarray, stacks: identify.StackIds) -> Announcement | None:
    """Returns the nodes and locations of a batch that were not announced that day, and notes them as announced.

    None where there are none. A node is always announced together with all its ancestors, so a stack whose leaf was
    announced needs no further check: a batch of known stacks costs one look-up for each stack.
    """
    unknown = np.flatnonzero(~day.nodes.contains(stacks.stack_id) & (raw.stack_depth > 0))
    if not len(unknown):
        return None
    # Mostly the stacks are new to the worker, too: their nodes were computed for their IDs.
    nodes = (stacks.new and stacks.new.of(unknown)) or identify.nodes(raw, location_id, unknown)
    rows = _new(day.nodes, nodes.node_id, np.arange(len(nodes.node_id)))
    location_rows = _new(day.locations, location_id, np.unique(nodes.location[rows]))
    node_location_id = location_id[nodes.location[rows]]
    return Announcement(nodes.node_id[rows], nodes.parent[rows], node_location_id, location_rows, len(unknown))


def _new(known: RecentIds, ids: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns, of the given rows, the first one of every ID that is not known, and notes those IDs as known."""
    rows = rows[np.unique(ids[rows], return_index=True)[1]]
    rows = rows[~known.contains(ids[rows])]
    known.add(ids[rows])
    return rows
