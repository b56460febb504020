"""What one frame of a graph stands for."""

from dataclasses import replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from api.array_types import Rows
from api.tree.frame_functions import UNNAMED, UNNAMED_CODE, FrameFunctions
from api.tree.functions import NOT_CODE, Function, FunctionRows
from api.tree.hash_index import HashIndex
from api.tree.locations import Locations


class Granularity(StrEnum):
    FUNCTION = "function"
    LINE = "line"
    FILE = "file"
    MODULE = "module"
    ADDRESS = "address"

    @property
    def is_fine(self) -> bool:
        """Whether a function may be several frames."""
        return self in (Granularity.LINE, Granularity.ADDRESS)


class FineFrames:
    """Lines or addresses of functions, by row, as FrameNumbers and as FunctionRows. For one thread at a time.

    A line is named `function:line`, an address `function 0xaddress`, or `module+0xaddress` without symbols.
    """

    def __init__(self, by: Granularity, functions: FrameFunctions, locations: Locations) -> None:
        self._by = by
        self._functions = functions
        self._locations = locations
        self._index = HashIndex()  # of function << 32 | line or row of the location
        self._index.append(np.arange(len(NOT_CODE), dtype=np.uint64) << np.uint64(32))

    def __call__(self, frames: npt.NDArray[np.int64], locations: Rows) -> Rows:
        function = self._locations.frame_function[frames]
        detail = self._locations.frame_line[frames] if self._by is Granularity.LINE else locations
        numbers = function.copy()
        named = function < UNNAMED
        keys = function.astype(np.uint64) << np.uint64(32) | detail.astype(np.uint64)
        numbers[named] = self._index.add(keys[named])
        return numbers

    def __getitem__(self, row: int) -> Function:
        if not _is_fine(row):
            return self._functions[row]
        function, detail = self.whole_functions[row], int(self._index.keys[row]) & 0xFFFFFFFF
        if self._by is Granularity.LINE:
            return replace(function, name=f"{function.name}:{detail}", line=detail) if detail else function
        address = int(self._locations.address[detail])
        return replace(function, name=f"{function.name} {address:#x}") if address else function

    @property
    def whole_functions(self) -> FunctionRows:
        """The function that a line or an address belongs to."""
        return _WholeFunctions(self._index, self._functions)


class _WholeFunctions:
    def __init__(self, index: HashIndex, functions: FrameFunctions) -> None:
        self._index, self._functions = index, functions

    def __getitem__(self, row: int) -> Function:
        return self._functions[int(self._index.keys[row]) >> 32 if _is_fine(row) else row]


def _is_fine(row: int) -> bool:
    return len(NOT_CODE) <= row < UNNAMED_CODE
