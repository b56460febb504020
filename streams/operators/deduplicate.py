"""Remembers which nodes and locations were announced: each is announced once a day, or once in a part of a day."""

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from icestream.columns.recent_ids import RecentIds
from icestream.messages import identify
from icestream.messages.raw import RawColumns
from icestream.times import DAY_NS
from streams import metrics

PERIODS = 3
"""Periods remembered in any case, those used last: hosts' clocks differ, and batches may come late."""
MOST_PERIODS = 72
"""Periods remembered at most. After an outage, spools may have batches of many periods, if those are hours. Those that
are not among the last PERIODS are forgotten a period after they began to be used, or if there are too many IDs. What is
in use is then announced again. It has to be, as what was announced that long ago Kafka may have deleted."""
MAX_IDS = 1_000_000
"""IDs remembered for each period and kind, 8 bytes each; of all periods, as many as PERIODS may have. Forgotten ones
are announced again."""


@dataclass
class Period:
    """The nodes and locations that were announced for one UTC day of samples, or for a part of it."""

    since_unix_nano: int = 0  # the newest batch when it began to be used
    nodes: RecentIds = field(default_factory=lambda: RecentIds(MAX_IDS))
    locations: RecentIds = field(default_factory=lambda: RecentIds(MAX_IDS))

    def __len__(self) -> int:
        """Returns the number of IDs."""
        return len(self.nodes) + len(self.locations)


@dataclass
class Announced:
    """What was announced in one partition, by period: the UTC day of the samples, or the part of a day."""

    period_ns: int = DAY_NS  # a day, or a part of it of which a day has a whole number
    periods: OrderedDict[int, Period] = field(default_factory=OrderedDict)  # the least recently used one first
    newest_unix_nano: int = 0

    def period(self, unix_nano: int) -> Period:
        """Returns the period of a time, and forgets periods."""
        self.newest_unix_nano = max(self.newest_unix_nano, unix_nano)
        number = unix_nano // self.period_ns
        period = self.periods.pop(number, None)
        if period is None:
            period = Period(self.newest_unix_nano)
        self.periods[number] = period
        self._forget()
        return period

    def _forget(self) -> None:
        if len(self.periods) <= PERIODS:
            return
        ids = sum(map(len, self.periods.values()))
        for number, period in list(self.periods.items())[:-PERIODS]:
            old = self.newest_unix_nano - period.since_unix_nano >= self.period_ns
            if old or len(self.periods) > MOST_PERIODS or ids > PERIODS * 2 * MAX_IDS:
                ids -= len(self.periods.pop(number))


@dataclass
class Announcement:
    """The n nodes of a batch, and the l locations, that must be announced."""

    node_id: np.ndarray  # uint64 (n,), each new node once
    node_parent_id: np.ndarray  # uint64 (n,), 0: a root
    node_location_id: np.ndarray  # uint64 (n,), location IDs
    location_rows: np.ndarray  # int64 (l,), rows of the batch's locations, each new location once
    location_id: np.ndarray  # uint64 (l,)
    repeated: float = 0.0  # which share of the nodes and locations was announced in that period before


def unannounced(period: Period, raw: RawColumns, stack_id: np.ndarray) -> Announcement | None:
    """Returns the nodes and locations of a batch that were not announced in that period, and notes them.

    None where there are none. A node is always announced together with all its ancestors, so a stack whose leaf was
    announced needs no further check: a batch of known stacks costs one look-up for each stack. A stack whose sender
    gave it an ID that is not that of its frames is not announced, nor noted: it keeps nobody from announcing the stack
    that has this ID.
    """
    unknown = np.flatnonzero(~period.nodes.contains(stack_id) & (raw.stack_depth > 0))
    metrics.STACKS.labels("yes").inc(len(stack_id) - len(unknown))
    if not len(unknown):
        return None
    nodes = identify.nodes(raw, unknown)
    wrong = nodes.node_id[nodes.leaf] != stack_id[unknown]
    if wrong.any():
        metrics.WRONG_STACKS.inc(int(wrong.sum()))
        unknown = unknown[~wrong]
        if not len(unknown):
            return None
        nodes = identify.nodes(raw, unknown)
    metrics.STACKS.labels("no").inc(len(unknown))
    rows = _new(period.nodes, nodes.node_id, np.arange(len(nodes.node_id)))
    of_location = _new(period.locations, nodes.location_id, rows)
    return Announcement(
        node_id=nodes.node_id[rows],
        node_parent_id=nodes.parent[rows],
        node_location_id=nodes.location_id[rows],
        location_rows=nodes.location[of_location].astype(np.int64),
        location_id=nodes.location_id[of_location],
    )


def _new(known: RecentIds, ids: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns, of the given rows, the first one of every ID that is not known, and notes those IDs as known."""
    rows = rows[np.unique(ids[rows], return_index=True)[1]]
    rows = rows[~known.contains(ids[rows])]
    known.add(ids[rows])
    return rows
