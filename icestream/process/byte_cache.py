"""A dictionary up to a number of bytes: beyond it, the entries that were used least recently are forgotten."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

ENTRY_BYTES = 200
"""About what a dictionary, a key and a value take beside what they hold."""

K = TypeVar("K")
V = TypeVar("V")


class ByteCache(Generic[K, V]):
    """Safe for several threads."""

    def __init__(self, limit_bytes: int, size: Callable[[K, V], int]) -> None:
        """`size` returns the bytes that a key and its value hold. An entry counts ENTRY_BYTES more."""
        self.bytes = 0
        self.limit_bytes = limit_bytes
        """May be changed: the next `put` keeps to it."""
        self._size = size
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def items(self) -> list[tuple[K, V]]:
        """Returns all entries, those that were used least recently first, without marking them as used."""
        with self._lock:
            return [(key, value) for key, (value, _) in self._entries.items()]

    def get(self, key: K) -> V | None:
        """Returns the value of a key and marks it as used now; None if there is none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def get_or_make(self, key: K, make: Callable[[K], V]) -> V:
        """Returns the value of a key; makes and adds it if there is none."""
        value = self.get(key)
        if value is None:
            value = make(key)
            self.put(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        """Adds or replaces an entry. An entry that is larger than the limit is not kept."""
        size = self._size(key, value) + ENTRY_BYTES
        with self._lock:
            self._pop(key)
            if size > self.limit_bytes:
                return
            self._entries[key] = (value, size)
            self.bytes += size
            while self.bytes > self.limit_bytes:
                self.bytes -= self._entries.popitem(last=False)[1][1]

    def pop(self, key: K) -> None:
        """Forgets an entry, if there is one."""
        with self._lock:
            self._pop(key)

    def _pop(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.bytes -= entry[1]
