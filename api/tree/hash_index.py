"""A hash table of 64-bit keys whose operations work on whole columns."""

import numpy as np
import numpy.typing as npt

from api.array_types import Rows
from api.tree.distinct import distinct_ids
from api.tree.growable_column import GrowableColumn

Keys = npt.NDArray[np.uint64]

_MIX = np.uint64(0xFF51AFD7ED558CCD)
_SHIFT = np.uint64(32)
_MAX_LOAD = 0.5


class HashIndex:
    """The rows of keys: 0, 1, 2... in the order in which keys are added. For one thread at a time.

    Open addressing: a slot holds a row or -1, and a key whose slot is occupied goes to the next free one.
    """

    def __init__(self) -> None:
        self._keys = GrowableColumn(np.uint64)
        self._resize(1 << 10)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def keys(self) -> Keys:
        """The key of each row, a view."""
        return self._keys.values

    def find(self, keys: Keys) -> Rows:
        """The rows of `keys`, -1 for those that were not added."""
        rows = np.full(len(keys), -1, np.int32)
        if not len(self._keys):
            return rows
        stored = self._keys.values
        pending = np.arange(len(keys))
        slots = self._first_slots(keys)
        while len(pending):
            candidates = self._slots[slots]
            occupied = candidates >= 0
            equal = occupied & (stored[candidates] == keys[pending])
            rows[pending[equal]] = candidates[equal]
            collided = occupied & ~equal
            pending, slots = pending[collided], (slots[collided] + 1) & self._mask
        return rows

    def add(self, keys: Keys) -> Rows:
        """Like `find`, after adding the keys that are missing."""
        rows = self.find(keys)
        missing = np.flatnonzero(rows < 0)
        if len(missing):
            self.append(distinct_ids(keys[missing]))
            rows[missing] = self.find(keys[missing])
        return rows

    def append(self, keys: Keys) -> None:
        """Adds keys in this order. They must be distinct and not added before."""
        start, end = len(self), len(self) + len(keys)
        self._keys.extend(keys)
        size = len(self._slots)
        if end > _MAX_LOAD * size:
            while end > _MAX_LOAD / 2 * size:
                size *= 2
            self._resize(size)
        else:
            self._fill_slots(np.arange(start, end, dtype=np.int32))

    def _resize(self, size: int) -> None:
        self._slots = np.full(size, -1, np.int32)
        self._mask = size - 1
        self._fill_slots(np.arange(len(self), dtype=np.int32))

    def _fill_slots(self, rows: Rows) -> None:
        slots = self._first_slots(self._keys.values[rows])
        while len(rows):
            free = self._slots[slots] < 0
            self._slots[slots[free]] = rows[free]  # of several rows in one slot, one stays
            collided = self._slots[slots] != rows
            rows, slots = rows[collided], (slots[collided] + 1) & self._mask

    def _first_slots(self, keys: Keys) -> npt.NDArray[np.int64]:
        # The high half of a product depends on all bits below it, so keys of packed integers spread, too.
        return ((keys ^ (keys >> _SHIFT)) * _MIX >> _SHIFT).astype(np.int64) & self._mask
