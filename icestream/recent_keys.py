"""Keys with values in sorted numpy arrays, up to a number of keys: those used least recently are forgotten.

There are two generations. Keys that are new, or used again, are in the younger one. When that has half of the keys
allowed, the older one is dropped and the younger one takes its place.
"""

import numpy as np

from icestream import sorted_keys


class RecentKeys:
    """A dictionary from uint64 to a number that is not 0."""

    def __init__(self, limit: int, value_type: type[np.unsignedinteger]) -> None:
        self._half = max(limit // 2, 1)
        self._value_type = value_type
        self._young, self._old = _Table(value_type), _Table(value_type)

    def __len__(self) -> int:
        """Returns the number of keys; those in both generations count twice."""
        return len(self._young) + len(self._old)

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Returns the value of each key, 0 where it is not known, and marks the keys as used."""
        values = self._young.find(keys)
        if len(self._old) and len(missing := np.flatnonzero(values == 0)):
            values[missing] = self._old.find(keys[missing])
            again = missing[values[missing] != 0]
            if len(again):
                self.add(keys[again], values[again])
        return values

    def add(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Adds keys that are not known; a key may come several times."""
        keys, first = np.unique(keys, return_index=True)
        if len(self._young) + len(keys) > self._half:
            self._old, self._young = self._young, _Table(self._value_type)
        self._young.add(keys, values[first])


class RecentIds:
    """A set of uint64."""

    def __init__(self, limit: int) -> None:
        self._ids = RecentKeys(limit, np.uint8)

    def __len__(self) -> int:
        """Returns the number of IDs; some count twice."""
        return len(self._ids)

    def contains(self, ids: np.ndarray) -> np.ndarray:
        """Returns whether the set has each ID, bool of the shape of `ids`, and marks the IDs as used."""
        member: np.ndarray = self._ids.find(ids) != 0
        return member

    def add(self, ids: np.ndarray) -> None:
        """Adds IDs that are not in the set; an ID may come several times."""
        self._ids.add(ids, np.ones(len(ids), np.uint8))


class _Table:
    """Two pairs of sorted arrays: a large one, and a small one for new keys, which is merged when it grows."""

    def __init__(self, value_type: type[np.unsignedinteger]) -> None:
        self._keys = self._new_keys = np.empty(0, np.uint64)
        self._values = self._new_values = np.empty(0, value_type)

    def __len__(self) -> int:
        return len(self._keys) + len(self._new_keys)

    def find(self, keys: np.ndarray) -> np.ndarray:
        values = _find(self._keys, self._values, keys)
        values |= _find(self._new_keys, self._new_values, keys)  # a key is in at most one of the two
        return values

    def add(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Adds distinct keys that are not in the table, ascending."""
        self._new_keys, self._new_values = _merge(self._new_keys, self._new_values, keys, values)
        if len(self._new_keys) > 1024 + len(self._keys) // 8:
            self._keys, self._values = _merge(self._keys, self._values, self._new_keys, self._new_values)
            self._new_keys, self._new_values = np.empty(0, np.uint64), np.empty(0, self._values.dtype)


def _find(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    if not len(keys):
        return np.zeros(len(wanted), values.dtype)
    row = sorted_keys.find(keys, wanted)
    found: np.ndarray = np.where(row >= 0, values[row], values.dtype.type(0))
    return found


def _merge(
    keys: np.ndarray, values: np.ndarray, more_keys: np.ndarray, more_values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    rows = np.searchsorted(keys, more_keys)
    return np.insert(keys, rows, more_keys), np.insert(values, rows, more_values)
