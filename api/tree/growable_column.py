"""A column that grows at its end."""

from typing import Any

import numpy as np
import numpy.typing as npt


class Column:
    """Append-only; `values` taken earlier stay valid, so readers need no lock."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._room: npt.NDArray[Any] = np.zeros(512, dtype)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def values(self) -> npt.NDArray[Any]:
        """The column so far, a view."""
        return self._room[: self._count]

    def extend(self, values: npt.ArrayLike) -> None:
        array = np.asarray(values, self._room.dtype)
        end = self._count + len(array)
        if end > len(self._room):
            room = np.zeros(max(2 * len(self._room), end), self._room.dtype)
            room[: self._count] = self.values
            self._room = room
        self._room[self._count : end] = array
        self._count = end
