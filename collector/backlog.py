"""Records of processes that nobody has asked about yet, undecoded."""

from collections import deque
from collections.abc import Iterator

import numpy as np

from collector.process_events import Event, Records, decode

MAX_BYTES = 8 << 20
MAX_BATCHES = 4096


class Backlog:
    """The latest MAX_BYTES of records; the oldest go first."""

    def __init__(self) -> None:
        self._batches: deque[tuple[Records, list[int]]] = deque()  # with the processes in it
        self._of: dict[int, deque[tuple[Records, np.ndarray]]] = {}
        self._bytes = 0

    def add(self, records: Records) -> list[int]:
        """Returns the processes that the records (one or more) are about, in the order of their first ones."""
        order = np.argsort(records.pid, kind="stable")
        pids, first = np.unique(records.pid[order], return_index=True)
        parts = np.split(order, first[1:])
        found = [int(pid) for pid in pids[np.argsort(order[first])]] if len(pids) else []
        for pid, part in zip(pids.tolist(), parts, strict=False):
            self._of.setdefault(pid, deque()).append((records, part))
        self._batches.append((records, found))
        self._bytes += len(records.data)
        return found

    def drop(self, until_ns: int = 0) -> Iterator[int]:
        """Makes room, and forgets what is older; the processes whose records went with it, unread."""
        if not self._of:
            self._batches.clear()
            self._bytes = 0
        while self._batches and (
            self._bytes > MAX_BYTES
            or len(self._batches) > MAX_BATCHES
            or int(self._batches[0][0].time_ns[-1]) < until_ns
        ):
            records, pids = self._batches.popleft()
            self._bytes -= len(records.data)
            for pid in pids:
                parts = self._of.get(pid)
                if parts and parts[0][0] is records:
                    parts.popleft()
                    if not parts:
                        del self._of[pid]
                    yield pid

    def take(self, pid: int, until_ns: int | None = None) -> list[Event]:
        """The events of a process, each once, in order; only those before a time."""
        parts = self._of.get(pid)
        events: list[Event] = []
        while parts:
            records, part = parts[0]
            count = len(part) if until_ns is None else int(np.searchsorted(records.time_ns[part], until_ns))
            for at in records.start[part[:count]].tolist():
                event = decode(records.data, at)
                if event is not None:
                    events.append(event)
            if count < len(part):
                parts[0] = records, part[count:]
                break
            parts.popleft()
        if parts is not None and not parts:
            del self._of[pid]
        return events

    def __contains__(self, pid: int) -> bool:
        return pid in self._of
