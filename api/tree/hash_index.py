"""A hash table of 64-bit keys whose operations work on whole columns."""

import numpy as np
import numpy.typing as npt

from api.tree.growable_column import Column

Keys = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int32]

_MIX = np.uint64(0xFF51AFD7ED558CCD)
_SHIFT = np.uint64(32)
_MAX_LOAD = 0.5


def distinct(keys: Keys) -> Keys:
    """`keys` in ascending order, each once. (np.unique of numpy 2.3 and later hashes, which is slower by far here.)"""
    ordered = np.sort(keys)
    first = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    found: Keys = ordered[first]
    return found


class KeyTable:
    """uint64 keys to rows, given out as 0, 1, 2... in the order in which keys are added (open addressing).

    For one thread at a time.
    """

    def __init__(self) -> None:
        self._keys = Column(np.uint64)
        self._resize(1 << 10)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def keys(self) -> Keys:
        """The key of each row; a view."""
        return self._keys.values

    def find(self, keys: Keys) -> Rows:
        """The rows of `keys`, -1 where they are not there."""
        rows = np.full(len(keys), -1, np.int32)
        if not len(self._keys):
            return rows
        stored = self._keys.values
        waiting = np.arange(len(keys))
        slots = self._home(keys)
        while len(waiting):
            found = self._slots[slots]
            taken = found >= 0
            hit = taken & (stored[found] == keys[waiting])
            rows[waiting[hit]] = found[hit]
            on = taken & ~hit
            waiting, slots = waiting[on], (slots[on] + 1) & self._mask
        return rows

    def add(self, keys: Keys) -> Rows:
        """Like `find`, after adding the keys that are not there."""
        rows = self.find(keys)
        missing = np.flatnonzero(rows < 0)
        if len(missing):
            self.append(distinct(keys[missing]))
            rows[missing] = self.find(keys[missing])
        return rows

    def append(self, keys: Keys) -> None:
        """Adds keys that are distinct and not there yet, in this order."""
        start, end = len(self), len(self) + len(keys)
        self._keys.extend(keys)
        size = len(self._slots)
        if end > _MAX_LOAD * size:
            while end > _MAX_LOAD / 2 * size:
                size *= 2
            self._resize(size)
        else:
            self._place(np.arange(start, end, dtype=np.int32))

    def _resize(self, size: int) -> None:
        self._slots = np.full(size, -1, np.int32)
        self._mask = size - 1
        self._place(np.arange(len(self), dtype=np.int32))

    def _place(self, rows: Rows) -> None:
        slots = self._home(self._keys.values[rows])
        while len(rows):
            free = self._slots[slots] < 0
            self._slots[slots[free]] = rows[free]  # of several rows in one slot, one stays
            on = self._slots[slots] != rows
            rows, slots = rows[on], (slots[on] + 1) & self._mask

    def _home(self, keys: Keys) -> npt.NDArray[np.int64]:
        # The high half of a product depends on all bits below it, so keys of packed integers spread, too.
        return ((keys ^ (keys >> _SHIFT)) * _MIX >> _SHIFT).astype(np.int64) & self._mask
