"""Pauses between the reads of processes' threads, so that no process and no user can make the collector read all the
time."""

import time

from collector.activity.quotas import PROCESS_SHARE

Reader = tuple[str, int, int | None]
"""Whom a read is for: a process, by its ID and when it began (None if it ended), or a user."""

_LOOK_AT = 1024  # pauses; then those that are over are removed


class ReadPauses:
    """After a read, its process and its user wait in proportion to the time that it took.

    A pause is kept until it is over. There cannot be many: each is at most 20 times as long as its read, and one thread
    does all reads.
    """

    def __init__(self, user_share: float) -> None:
        """`user_share`: of the time, for the processes of one user."""
        self._user_share = user_share
        self._until: dict[Reader, float] = {}  # time.monotonic()

    def allow(self, pid: int, start_ticks: int | None, uid: int) -> bool:
        """Whether neither the process nor its user has to wait."""
        now = time.monotonic()
        return all(self._until.get(reader, 0.0) <= now for reader in _readers(pid, start_ticks, uid))

    def add(self, pid: int, start_ticks: int | None, uid: int, began: float) -> None:
        """Notes a read that began at `began` (time.monotonic()) and is done."""
        now = time.monotonic()
        if len(self._until) >= _LOOK_AT:
            self._until = {reader: until for reader, until in self._until.items() if until > now}
        process, user = _readers(pid, start_ticks, uid)
        self._until[process] = now + (now - began) / PROCESS_SHARE
        self._until[user] = now + (now - began) / self._user_share


def _readers(pid: int, start_ticks: int | None, uid: int) -> tuple[Reader, Reader]:
    return ("process", pid, start_ticks), ("user", uid, None)
