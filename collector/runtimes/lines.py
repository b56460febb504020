"""The lines of one piece of code."""

from array import array
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

_MAX_LINE = (1 << 31) - 1


class CodeLines:
    """Lines by offset, in the units of the table that they come from."""

    __slots__ = ("_lines", "_starts")

    def __init__(self, starts: Sequence[int], lines: Sequence[int]) -> None:
        self._starts, self._lines = starts, lines

    def __len__(self) -> int:
        return len(self._starts)

    def at(self, offset: int) -> int:
        """Returns the line of what begins at or before `offset`; 0 if the table has none."""
        row = bisect_right(self._starts, offset) - 1
        return self._lines[row] if row >= 0 else 0


def code_lines(at: np.ndarray, lines: np.ndarray) -> CodeLines:
    """Makes them of entries that begin at these offsets (ascending), in these lines."""
    lines = np.clip(lines, 0, _MAX_LINE)
    new = np.ones(len(lines), bool)
    new[1:] = lines[1:] != lines[:-1]
    return CodeLines(array("I", at[new].tolist()), array("I", lines[new].tolist()))
