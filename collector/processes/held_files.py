"""Descriptors of files that processes mapped lately, so that a file can be read when its processes, its container and
its name are gone.

A held file keeps its disk space and its mount busy, so it is let go five minutes after the last process was seen to map
it, and at most MAX_HELD are held, those seen last.
"""

import os
import resource
import threading
import time
from collections import OrderedDict

MAX_HELD = 256
KEEP_S = 300.0
_FRESH_S = 30.0  # one seen within that is not let go for another
_DESCRIPTORS = 4096


class HeldFiles:
    """By the key of each file (Identity.key). Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[str, tuple[int, float]] = OrderedDict()  # descriptor, when it was seen; oldest first
        raise_limit()

    def keep(self, key: str, descriptor: int) -> None:
        """Takes the descriptor over; it is closed at once where there is no room."""
        now = time.monotonic()
        with self._lock:
            closing = self._expired(now)
            if key in self._held:
                closing.append(self._held.pop(key)[0])
            if len(self._held) >= MAX_HELD and now - next(iter(self._held.values()))[1] < _FRESH_S:
                closing.append(descriptor)
            else:
                self._held[key] = descriptor, now
                if len(self._held) > MAX_HELD:
                    closing.append(self._held.popitem(last=False)[1][0])
        _close(closing)

    def touch(self, key: str) -> bool:
        """A process mapped the file: whether it is held, or cannot be for lack of room."""
        now = time.monotonic()
        with self._lock:
            held = self._held.get(key)
            if held is None:
                return len(self._held) >= MAX_HELD and now - next(iter(self._held.values()))[1] < _FRESH_S
            self._held[key] = held[0], now
            self._held.move_to_end(key)
            return True

    def open(self, key: str) -> int | None:
        """A descriptor of its own, which the caller closes; None where none is held."""
        with self._lock:
            held = self._held.get(key)
            return None if held is None else os.dup(held[0])

    def expire(self) -> None:
        """Closes files that no process has mapped for KEEP_S seconds."""
        with self._lock:
            closing = self._expired(time.monotonic())
        _close(closing)

    def close(self) -> None:
        with self._lock:
            closing = [descriptor for descriptor, _ in self._held.values()]
            self._held.clear()
        _close(closing)

    def __del__(self) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._held)

    def _expired(self, now: float) -> list[int]:
        closing = []
        while self._held and now - next(iter(self._held.values()))[1] > KEEP_S:
            closing.append(self._held.popitem(last=False)[1][0])
        return closing


def raise_limit() -> None:
    """Lets this process have more descriptors open, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
