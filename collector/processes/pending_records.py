"""Records that are not decoded yet, because their processes were not looked up."""

from collections import deque
from collections.abc import Iterator

from collector.processes.process_events import Event, EventRecord, decode, is_mapping

MAX_RECORDS = 25_000
"""About 9 MB: the last seconds of a host that starts a thousand processes a second."""


class PendingRecords:
    """The latest records, at most MAX_RECORDS. The oldest are dropped first."""

    def __init__(self) -> None:
        self._batches: deque[list[EventRecord]] = deque()
        self._of_process: dict[int, deque[EventRecord]] = {}
        self._count = 0

    def add(self, records: list[EventRecord]) -> list[int]:
        """Returns the processes that the records are about, in the order of their first records."""
        pids: dict[int, None] = {}
        for record in records:
            pid = record.pid
            pids[pid] = None
            waiting = self._of_process.get(pid)
            if waiting is None:
                self._of_process[pid] = deque((record,))
            else:
                waiting.append(record)
        self._batches.append(records)
        self._count += len(records)
        return list(pids)

    def drop(self, until_monotonic_ns: int = 0) -> Iterator[int]:
        """Drops records before a time, and as many as there are too many. Yields their processes."""
        if not self._of_process:
            self._batches.clear()
            self._count = 0
        while self._batches and (
            self._count > MAX_RECORDS or self._batches[0][-1].time_monotonic_ns < until_monotonic_ns
        ):
            records = self._batches.popleft()
            self._count -= len(records)
            for record in records:
                waiting = self._of_process.get(record.pid)
                if waiting and waiting[0] is record:
                    waiting.popleft()
                    if not waiting:
                        del self._of_process[record.pid]
                    yield record.pid

    def count(self, pid: int) -> int:
        return len(self._of_process.get(pid, ()))

    def cut(self, pid: int, most: int) -> bool:
        """Drops the oldest mappings of a process, so that at most so many are left. Returns whether it dropped any."""
        waiting = self._of_process[pid]
        too_many = sum(map(is_mapping, waiting)) - most
        if too_many <= 0:
            return False
        kept: deque[EventRecord] = deque()
        for record in waiting:
            if too_many > 0 and is_mapping(record):
                too_many -= 1
            else:
                kept.append(record)
        self._of_process[pid] = kept
        return True

    def pop(self, pid: int, until_monotonic_ns: int | None = None) -> list[Event]:
        """Decodes and removes the records of a process, in order; with a time, only those before it."""
        waiting = self._of_process.get(pid)
        events: list[Event] = []
        while waiting and (until_monotonic_ns is None or waiting[0].time_monotonic_ns < until_monotonic_ns):
            event = decode(waiting.popleft())
            if event is not None:
                events.append(event)
        if waiting is not None and not waiting:
            del self._of_process[pid]
        return events

    def __contains__(self, pid: int) -> bool:
        return pid in self._of_process

    def __len__(self) -> int:
        """How many records take memory, also those that were taken from the middle."""
        return self._count
