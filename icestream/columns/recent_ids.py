"""A set of IDs in sorted numpy arrays, up to a number of IDs: those used least recently are forgotten.

There are two generations. IDs that are new, or used again, are in the younger one. When that has half of the IDs
allowed, the older one is dropped and the younger one takes its place.
"""

import numpy as np

from icestream.columns import sorted_keys


class RecentIds:
    """A set of uint64."""

    def __init__(self, limit: int) -> None:
        self._half = max(limit // 2, 1)
        self._young, self._old = _Generation(), _Generation()

    def __len__(self) -> int:
        """Returns the number of IDs; those in both generations count twice."""
        return len(self._young) + len(self._old)

    def contains(self, ids: np.ndarray) -> np.ndarray:
        """Returns whether the set has each ID, bool of the shape of `ids`, and marks the IDs as used."""
        member = self._young.contains(ids)
        if len(self._old) and len(missing := np.flatnonzero(~member)):
            again = missing[self._old.contains(ids[missing])]
            if len(again):
                member[again] = True
                self.add(ids[again])
        return member

    def add(self, ids: np.ndarray) -> None:
        """Adds IDs that are not in the set; an ID may come several times."""
        ids = sorted_keys.distinct(ids)
        if len(self._young) + len(ids) > self._half:
            self._old, self._young = self._young, _Generation()
        self._young.add(ids)


class _Generation:
    """Two sorted arrays: a large one, and a small one for new IDs, which is merged when it grows."""

    def __init__(self) -> None:
        self._ids = self._new = np.empty(0, np.uint64)

    def __len__(self) -> int:
        return len(self._ids) + len(self._new)

    def contains(self, ids: np.ndarray) -> np.ndarray:
        member: np.ndarray = (sorted_keys.find(self._ids, ids) >= 0) | (sorted_keys.find(self._new, ids) >= 0)
        return member

    def add(self, ids: np.ndarray) -> None:
        """Adds distinct IDs that are not in the generation, ascending."""
        self._new = _merge(self._new, ids)
        if len(self._new) > 1024 + len(self._ids) // 8:
            self._ids, self._new = _merge(self._ids, self._new), np.empty(0, np.uint64)


def _merge(ids: np.ndarray, more: np.ndarray) -> np.ndarray:
    return np.insert(ids, np.searchsorted(ids, more), more)
