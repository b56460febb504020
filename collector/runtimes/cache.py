"""The objects of code that were read from the memory of processes.

An object is identified by process, address and check (bpf/managed.h): another one may be allocated at the same address
later.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

Object = TypeVar("Object")

MAX_OBJECTS = 16_384


class Key(NamedTuple):
    pid: int
    address: int
    check: int


class ObjectCache(Generic[Object]):
    """Keeps objects of all processes; the least recently used are dropped. For several threads. `size` says how much of
    `most` an object takes."""

    def __init__(self, most: int = MAX_OBJECTS, size: Callable[[Object], int] = lambda each: 1) -> None:
        self._most, self._size = most, size
        self._lock = threading.Lock()
        self._known: OrderedDict[Key, Object] = OrderedDict()
        self._total = 0

    def __len__(self) -> int:
        return len(self._known)

    def add(self, objects: Mapping[Key, Object]) -> None:
        with self._lock:
            for key, known in objects.items():
                self._drop(key)
                self._known[key] = known
                self._total += self._size(known)
            while self._total > self._most:
                self._drop(next(iter(self._known)))

    def find(self, keys: Iterable[Key]) -> dict[Key, Object]:
        """Returns those of the objects that were read."""
        with self._lock:
            found = {key: known for key in keys if (known := self._known.get(key)) is not None}
            for key in found:
                self._known.move_to_end(key)
        return found

    def find_or_read(
        self, keys: Sequence[Key], read: Callable[[int, list[int]], Mapping[Key, Object]]
    ) -> dict[Key, Object]:
        """Returns those of the objects that can be had. `read` gets a process, and addresses that are not known."""
        known = self.find(keys)
        missing: dict[int, list[int]] = {}
        for key in keys:
            if key not in known:
                missing.setdefault(key.pid, []).append(key.address)
        for pid, addresses in missing.items():
            known |= read(pid, addresses)
        return known

    def forget(self, pids: Iterable[int]) -> None:
        """Forgets processes that have ended and whose last samples have names."""
        gone = set(pids)
        with self._lock:
            for key in [key for key in self._known if key.pid in gone] if gone else []:
                self._drop(key)

    def _drop(self, key: Key) -> None:
        known = self._known.pop(key, None)
        self._total -= 0 if known is None else self._size(known)
