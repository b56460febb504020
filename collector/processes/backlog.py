"""Records of processes that nobody has asked about yet, undecoded."""

from collections import deque
from collections.abc import Iterator

from collector.processes.process_events import Event, Record, decode

MAX_RECORDS = 25_000
"""About 9 MB: the last seconds of a host that starts a thousand processes a second."""


class Backlog:
    """The latest records, at most MAX_RECORDS; the oldest go first."""

    def __init__(self) -> None:
        self._batches: deque[list[Record]] = deque()
        self._of: dict[int, deque[Record]] = {}
        self._count = 0

    def add(self, records: list[Record]) -> list[int]:
        """Returns the processes that the records are about, in the order of their first ones."""
        pids: dict[int, None] = {}
        for record in records:
            pid = record[1]
            pids[pid] = None
            waiting = self._of.get(pid)
            if waiting is None:
                self._of[pid] = deque((record,))
            else:
                waiting.append(record)
        self._batches.append(records)
        self._count += len(records)
        return list(pids)

    def drop(self, until_ns: int = 0) -> Iterator[int]:
        """Makes room, and forgets what is older; the processes whose records went with it, unread."""
        if not self._of:
            self._batches.clear()
            self._count = 0
        while self._batches and (self._count > MAX_RECORDS or self._batches[0][-1][0] < until_ns):
            records = self._batches.popleft()
            self._count -= len(records)
            for record in records:
                waiting = self._of.get(record[1])
                if waiting and waiting[0] is record:
                    waiting.popleft()
                    if not waiting:
                        del self._of[record[1]]
                    yield record[1]

    def take(self, pid: int, until_ns: int | None = None) -> list[Event]:
        """The events of a process, each once, in order; only those before a time."""
        waiting = self._of.get(pid)
        events: list[Event] = []
        while waiting and (until_ns is None or waiting[0][0] < until_ns):
            event = decode(waiting.popleft())
            if event is not None:
                events.append(event)
        if waiting is not None and not waiting:
            del self._of[pid]
        return events

    def __contains__(self, pid: int) -> bool:
        return pid in self._of

    def __len__(self) -> int:
        """Records kept, also those that were taken meanwhile."""
        return self._count
