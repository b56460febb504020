"""Rows of a large unwinding table that stay on disk until they are needed: a table has up to 40 MB of them."""

import os
import weakref

import numpy as np

_ROW_BYTES = 4


class StoredRows:
    """Rows (uint32) at a place of a file. Rows that cannot be read any more raise OSError."""

    def __init__(self, descriptor: int, offset: int, count: int) -> None:
        """It keeps a duplicate of `descriptor` for as long as it lives."""
        self._descriptor = os.dup(descriptor)
        weakref.finalize(self, os.close, self._descriptor)
        self._offset, self._count = offset, count

    def __len__(self) -> int:
        return self._count

    def part(self, start: int, end: int) -> np.ndarray:
        """Reads the rows from `start` up to `end`. Raises OSError."""
        size = (end - start) * _ROW_BYTES
        data = os.pread(self._descriptor, size, self._offset + start * _ROW_BYTES)
        if len(data) != size:
            raise OSError("the file of an unwinding table was cut")
        return np.frombuffer(data, "<u4")
