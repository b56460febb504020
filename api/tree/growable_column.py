"""A column that grows at its end."""

from typing import Any

import numpy as np
import numpy.typing as npt


class GrowableColumn:
    """An array to append to. `values` taken earlier stay valid, so readers need no lock."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._buffer: npt.NDArray[Any] = np.zeros(512, dtype)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def values(self) -> npt.NDArray[Any]:
        """The column so far, a view."""
        return self._buffer[: self._count]

    def extend(self, values: npt.ArrayLike) -> None:
        """Appends values."""
        array = np.asarray(values, self._buffer.dtype)
        end = self._count + len(array)
        if end > len(self._buffer):
            buffer = np.zeros(max(2 * len(self._buffer), end), self._buffer.dtype)
            buffer[: self._count] = self.values
            self._buffer = buffer
        self._buffer[self._count : end] = array
        self._count = end
