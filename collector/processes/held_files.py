"""Descriptors of files that processes mapped lately, so that a file can be read when its processes, its container and
its name are gone.

A held file keeps its disk space and its mount busy, so it is let go five minutes after the last process was seen to map
it, and at most MAX_HELD are held: those that were seen last of each user, and the user who has most makes room for the
others.
"""

import os
import threading
import time
from collections import Counter, OrderedDict
from typing import NamedTuple

from collector.processes.process import effective_user_of
from icestream.process.descriptors import raise_limit

MAX_HELD = 256
KEEP_S = 300.0
_FRESH_S = 30.0  # one seen within that is not let go for another of the same user
_DESCRIPTORS = 4096


class _Held(NamedTuple):
    descriptor: int
    seen: float  # when, by time.monotonic
    user: int | None  # the effective one of the process; None if it had ended


class HeldFiles:
    """By the key of each file (Identity.key). Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[str, _Held] = OrderedDict()  # the one that was seen first comes first
        raise_limit(_DESCRIPTORS)

    def keep(self, key: str, descriptor: int, pid: int) -> None:
        """Takes over the descriptor of a file that a process has mapped; it is closed at once if there is no room."""
        now = time.monotonic()
        user = effective_user_of(pid)
        with self._lock:
            closing = self._expired(now)
            if key in self._held:
                closing.append(self._held.pop(key).descriptor)
            if len(self._held) >= MAX_HELD:
                giving_way = self._giving_way(user, now)
                closing.append(descriptor if giving_way is None else self._held.pop(giving_way).descriptor)
            if descriptor not in closing:
                self._held[key] = _Held(descriptor, now, user)
        _close(closing)

    def touch(self, key: str, pid: int) -> bool:
        """A process mapped the file: whether it is held, or cannot be for lack of room."""
        now = time.monotonic()
        with self._lock:
            held = self._held.get(key)
            if held is None:
                return len(self._held) >= MAX_HELD and self._giving_way(effective_user_of(pid), now) is None
            self._held[key] = held._replace(seen=now)
            self._held.move_to_end(key)
            return True

    def open(self, key: str) -> int | None:
        """A descriptor of its own, which the caller closes; None where none is held."""
        with self._lock:
            held = self._held.get(key)
            return None if held is None else os.dup(held.descriptor)

    def expire(self) -> None:
        """Closes files that no process has mapped for KEEP_S seconds."""
        with self._lock:
            closing = self._expired(time.monotonic())
        _close(closing)

    def close(self) -> None:
        with self._lock:
            closing = [held.descriptor for held in self._held.values()]
            self._held.clear()
        _close(closing)

    def __del__(self) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._held)

    def _expired(self, now: float) -> list[int]:
        closing = []
        while self._held and now - next(iter(self._held.values())).seen > KEEP_S:
            closing.append(self._held.popitem(last=False)[1].descriptor)
        return closing

    def _giving_way(self, user: int | None, now: float) -> str | None:
        """Returns which file makes room for one of a user: the one that was seen first of the user who has most, which
        may be this one. None if that was just now."""
        counts = Counter(held.user for held in self._held.values())
        most, count = counts.most_common(1)[0]
        loser = most if count > counts[user] + 1 else user
        key, oldest = next(((key, held) for key, held in self._held.items() if held.user == loser), (None, None))
        return key if oldest is not None and (loser != user or now - oldest.seen >= _FRESH_S) else None


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
