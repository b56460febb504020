"""Decodes the tables of the Go linker that have a value for each address of a function: its file, line, inlined call.

A table is a list of pairs: by how much the value changes (zigzag), and for how many bytes of code it holds. It ends
with a change of 0 that is not the first. Numbers are LEB128. Format: Go's src/runtime/symtab.go (pcvalue, step).
"""

from typing import NamedTuple

import numpy as np

MAX_BYTES = 64 << 20
"""The most bytes of all tables of a program."""
MAX_STEPS = 1 << 18
"""The most steps of one table; a longer one is not read."""

_MAX_NUMBER_BYTES = 5


class GoSteps(NamedTuple):
    """The steps of several functions, by function and address: where each value begins. int64 (k,)."""

    row: np.ndarray
    at: np.ndarray  # from the function's begin
    value: np.ndarray


class StepTables:
    """All tables of a program. Every table begins and ends with a number, so all numbers are decoded together."""

    def __init__(self, data: bytes) -> None:
        content = np.frombuffer(data, np.uint8) if len(data) <= MAX_BYTES else np.empty(0, np.uint8)
        last = np.flatnonzero(content < 0x80).astype(np.int32)
        self._begin = np.concatenate([np.zeros(1, np.int32), last + 1])[: len(last)]
        self._number = (content[last] & 0x7F).astype(np.uint32)
        length = last - self._begin + 1
        for size in range(2, _MAX_NUMBER_BYTES + 1):
            rows = np.flatnonzero(length == size)
            number = np.zeros(len(rows), np.uint32)
            for byte in range(size):
                number |= (content[self._begin[rows] + byte] & np.uint32(0x7F)) << np.uint32(7 * byte)
            self._number[rows] = number
        self._number[length > _MAX_NUMBER_BYTES] = 0
        zeros = np.flatnonzero(self._number == 0)
        # A change has an even or an odd place, as the first one of its table has.
        self._ends = [np.append(zeros[zeros % 2 == odd], len(last)) for odd in (0, 1)]

    def lengths(self, offsets: np.ndarray) -> np.ndarray:
        """Returns the number of steps of the tables at `offsets` (n,); 0 where no table is."""
        first, exists = self._first(offsets)
        if not len(self._begin):
            return np.zeros(len(offsets), np.int64)
        ends = [end[np.minimum(np.searchsorted(end, first, side="right"), len(end) - 1)] for end in self._ends]
        count = (np.where(first % 2 == 0, *ends) - first) // 2
        return np.where(exists & (count <= MAX_STEPS), count, 0)

    def steps(self, rows: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, sizes: np.ndarray) -> GoSteps:
        """Returns the steps of the tables of `rows`, which are sorted and of functions of `sizes` bytes. All (n,)."""
        first, _ = self._first(offsets)
        behind = np.cumsum(lengths)
        table = np.repeat(np.arange(len(rows)), lengths)
        begin = behind - lengths
        change = first[table] + 2 * (np.arange(len(table)) - begin[table])
        zigzag = self._number[change].astype(np.int64)
        value = _sums((zigzag >> 1) ^ -(zigzag & 1), table, begin) - 1
        size = self._number[change + 1].astype(np.int64)
        at = _sums(size, table, begin) - size
        inside = (at < sizes[table]) & (size > 0)
        return GoSteps(rows[table][inside], at[inside], value[inside])

    def _first(self, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The place of the number at each offset, and whether a table can be there. Offset 0 says that none is."""
        if not len(self._begin):
            return np.zeros(len(offsets), np.int64), np.zeros(len(offsets), bool)
        first = np.minimum(np.searchsorted(self._begin, offsets), len(self._begin) - 1)
        return first, (offsets > 0) & (self._begin[first] == offsets)


def _sums(values: np.ndarray, table: np.ndarray, begin: np.ndarray) -> np.ndarray:
    """The sum of the values of each table up to each of them."""
    sums = np.cumsum(values)
    before = np.append(0, sums)[begin]
    within: np.ndarray = sums - before[table]
    return within
