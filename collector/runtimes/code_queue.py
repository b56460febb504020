"""The code objects that the eBPF program asked for, a few of one process at a time: processes take turns."""

import threading

AT_ONCE = 64
"""Reading so many takes some milliseconds."""
MOST = 10_000
"""So many of one process may wait; the others are asked for again."""


class CodeQueue:
    """One thread puts in and ends it, another one takes."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[int]] = {}  # process -> addresses; the one that waits longest comes first
        self._changed = threading.Condition()
        self._ended = False

    def put(self, pid: int, address: int) -> None:
        with self._changed:
            waiting = self._waiting.setdefault(pid, [])
            if len(waiting) < MOST:
                waiting.append(address)
            self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()

    def pop(self) -> tuple[int, list[int]] | None:
        """Waits, and removes and returns a process and addresses of some of its code objects; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended)
            if self._ended:
                return None
            pid = next(iter(self._waiting))
            addresses = self._waiting.pop(pid)
            if left := addresses[AT_ONCE:]:
                self._waiting[pid] = left
            return pid, addresses[:AT_ONCE]
