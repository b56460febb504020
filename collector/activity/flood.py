"""Names the processes that send more activity than the collector takes."""

import logging
import time
from collections import Counter
from pathlib import Path

from collector.activity.quotas import DroppedDatagrams, Quotas

log = logging.getLogger(__name__)

_REPORT_S = 60.0
_MOST_NAMED = 3


class FloodLog:
    """Writes a line for each of the worst processes, at most once a minute."""

    def __init__(self, quotas: Quotas | None) -> None:
        self._quotas = quotas
        self._without_room: Counter[tuple[int, int]] = Counter()
        self._reported: Counter[tuple[int, int]] = Counter()
        self._reported_cut = 0
        self._not_before = 0.0

    def add(self, pid: int, uid: int) -> None:
        """Notes that a datagram was cut because there was no room for it."""
        self._without_room[pid, uid] += 1

    def report(self) -> list[DroppedDatagrams]:
        """Writes to the log what was cut since the last report, if it is time for one. Returns what it wrote."""
        now = time.monotonic()
        cut = self._quotas.cut() if self._quotas else 0
        if now < self._not_before or (cut == self._reported_cut and not self._without_room):
            return []
        self._not_before, self._reported_cut = now + _REPORT_S, cut
        totals = Counter({(each.pid, each.uid): each.datagrams for each in self._by_process()})
        new, self._reported = totals - self._reported + self._without_room, totals
        self._without_room = Counter()
        worst = [DroppedDatagrams(pid, uid, datagrams) for (pid, uid), datagrams in new.most_common(_MOST_NAMED)]
        for pid, uid, datagrams in worst:
            log.warning(
                "process %d (%s) of user %d sends too much activity: %d of its datagrams were dropped",
                pid, _name(pid), uid, datagrams,
            )  # fmt: skip
        return worst

    def _by_process(self) -> list[DroppedDatagrams]:
        return self._quotas.by_process() if self._quotas else []


def _name(pid: int) -> str:
    """The name of a process in quotes, without control characters, which anybody may put into one."""
    try:
        return repr(Path(f"/proc/{pid}/comm").read_bytes().rstrip(b"\n").decode("utf-8", "replace"))
    except OSError:
        return "ended"
