"""Processes whose details are read later, because the collector is above its CPU budget.

Most new processes on a host that starts many end before they are sampled twice. So the details of a new process are
read when it is sampled once more, `DEFER_S` after the first time.
"""

import threading
import time
from collections.abc import Callable

from collector import metrics

DEFER_S = 4.0
_KEEP_S = 60.0
_MAX_PROCESSES = 8192


class Deferred:
    """For any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._first: dict[int, float] = {}  # when a process was sampled first; the oldest first

    def add(self, pid: int) -> bool:
        """Whether the details of a process that was sampled are to be read later."""
        now = self._clock()
        with self._lock:
            if pid not in self._first:
                self._first[pid] = now
                metrics.DEFERRED.inc()
                while len(self._first) > _MAX_PROCESSES:
                    del self._first[next(iter(self._first))]
            return now - self._first[pid] < DEFER_S

    def expire(self) -> list[int]:
        """Forgets and returns processes that were sampled first a minute ago."""
        limit = self._clock() - _KEEP_S
        expired = []
        with self._lock:
            while self._first and self._first[first := next(iter(self._first))] < limit:
                del self._first[first]
                expired.append(first)
        return expired

    def __contains__(self, pid: int) -> bool:
        return pid in self._first
