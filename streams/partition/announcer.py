"""Chooses what to announce in a partition, so that icestream.stacks has it for as long as it is used.

Each node and location is announced once a day, as sinks need it. If Kafka keeps only so many bytes of the topic, newer
announcements push older ones out, also those of stacks that are still in use. So what is used is announced again once
half of these bytes were written. The bytes are counted before compression, so it is mostly sooner than needed.

Announcing again must not itself push out what it is for: no more bytes are announced again than are new, apart from the
first half. So what is in use is always there if it fits in a quarter of what is kept. Else some of it waits until more
is new, or for the next day.
"""

import numpy as np

from icestream.columns.recent_ids import RecentIds
from icestream.messages.raw import RawColumns
from streams import metrics
from streams.logs.stacks_retention import StacksRetention
from streams.operators.deduplicate import Announced, Announcement, unannounced


class Announcer:
    """What was announced in one partition."""

    def __init__(self, retention: StacksRetention) -> None:
        self._retention = retention
        self._most = (retention.bytes or 0) / 2
        self.forget()

    def forget(self) -> None:
        """Forgets everything: all that is used is announced again."""
        self._announced = Announced(self._retention.period_ns())
        self._credit = self._most  # bytes that may be announced again
        self._begin()

    def _begin(self) -> None:
        """Begins the next half of what is kept."""
        self._lately = Announced(self._retention.period_ns())  # what was announced in this half
        self._written = 0  # bytes, in this half

    def unannounced(self, raw: RawColumns, stack_id: np.ndarray) -> Announcement | None:
        """Returns what must be announced with a batch, and notes it as announced. None where there is nothing."""
        period = self._announced.period(raw.start_unix_nano)
        if self._credit <= 0:
            return unannounced(period, raw, stack_id)
        announcement = unannounced(self._lately.period(raw.start_unix_nano), raw, stack_id)
        if announcement is not None:
            nodes = _note(period.nodes, announcement.node_id)
            locations = _note(period.locations, announcement.location_id)
            metrics.NODES_AGAIN.inc(nodes)
            announcement.repeated = (nodes + locations) / (len(announcement.node_id) + len(announcement.location_id))
        return announcement

    def wrote(self, announcement: Announcement, size: int) -> None:
        """Counts the bytes of messages of an announcement."""
        if self._retention.bytes is None:
            return
        self._written += size
        self._credit = min(self._credit + size * (1 - 2 * announcement.repeated), self._most)
        if self._written >= self._most:
            self._begin()


def _note(known: RecentIds, ids: np.ndarray) -> int:
    """Adds IDs; returns how many of them are known."""
    member = known.contains(ids)
    known.add(ids[~member])
    return int(member.sum())
