"""The code objects that the eBPF program asked for, a few of one process at a time: processes take turns."""

AT_ONCE = 64
"""Reading so many takes some milliseconds."""
MOST = 10_000
"""Of one process that wait; the others are asked for again."""


class CodeQueue:
    """Used by one thread."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[int]] = {}  # process -> addresses; the one that waits longest comes first

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, pid: int, address: int) -> None:
        waiting = self._waiting.setdefault(pid, [])
        if len(waiting) < MOST:
            waiting.append(address)

    def take(self) -> tuple[int, list[int]]:
        """Removes and returns a process and addresses of some of its code objects. Raises KeyError if none waits."""
        pid = next(iter(self._waiting), 0)
        addresses = self._waiting.pop(pid)
        if left := addresses[AT_ONCE:]:
            self._waiting[pid] = left
        return pid, addresses[:AT_ONCE]
