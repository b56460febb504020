"""What lies at each address of a Go program: ranges of code, each with a file, a line and a function, which may be
inlined."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from collector.elf.go_steps import GoSteps, StepTables
from collector.elf.gopclntab import GoTable
from collector.symbols.go.functions import GoFunctions
from collector.symbols.go.inlined import find_calls, reach_functions, read_calls

MAX_STEPS = 8_000_000
"""The most steps of all tables; functions past it have no lines."""

_BLOCK_STEPS = 1 << 19
_AT = 0xFFFFFFFF
_NO_FILE = 0xFFFFFFFF


class Places(NamedTuple):
    """Lines of code. int32 (k,)."""

    row: np.ndarray  # of the function around
    name: np.ndarray  # of the inlined function, as offset in the names; -1 if it is the function around
    file: np.ndarray  # offset in the files; -1 if it is not known
    line: np.ndarray  # 0 if it is not known
    call: np.ndarray  # place in `calls` of the call that was inlined; -1 if none was


class GoRanges(NamedTuple):
    """The ranges of some functions, sorted by function and address, each up to the next one or the function's end."""

    at: np.ndarray  # int64: of each range, from the function's begin
    code: Places  # of each range
    calls: Places  # where inlined functions are called


def read_ranges(table: GoTable, functions: GoFunctions, data: bytes) -> GoRanges:
    """Returns the ranges of all functions. `data`: the functions' data; b"" if they are not known."""
    reader = _Reader(table, functions, data)
    steps = np.cumsum(reader.lengths.sum(axis=0))
    reader.lengths[:, steps > MAX_STEPS] = 0
    cuts = np.searchsorted(steps, np.arange(_BLOCK_STEPS, MAX_STEPS, _BLOCK_STEPS))
    blocks: list[GoRanges] = []
    calls = 0
    for begin, end in pairwise(sorted({0, *cuts.tolist(), len(steps)})):
        blocks.append(reader.ranges(np.arange(begin, end), calls))
        calls += len(blocks[-1].calls.row)
    return GoRanges(
        np.concatenate([block.at for block in blocks]),
        _joined([block.code for block in blocks]),
        _joined([block.calls for block in blocks]),
    )


class _Reader:
    def __init__(self, table: GoTable, functions: GoFunctions, data: bytes) -> None:
        self._table = table
        self._functions = functions
        self._data = data
        self._offsets = functions.files, functions.lines, functions.inlined
        self._tables = StepTables(table.data[table.steps : max(table.steps, table.functions)])
        self._files = np.frombuffer(table.data, "<u4", max(0, table.files - table.units) // 4, table.units)
        self.lengths = np.array([self._tables.lengths(offsets) for offsets in self._offsets])

    def ranges(self, rows: np.ndarray, calls_before: int) -> GoRanges:
        """Returns the ranges of some functions. `calls_before`: how many calls the functions before have."""
        sizes = self._functions.end[rows] - self._functions.start[rows]
        tables = [
            self._tables.steps(rows, offsets[rows], lengths[rows], sizes)
            for offsets, lengths in zip(self._offsets, self.lengths, strict=True)
        ]
        key = np.unique(np.concatenate([rows << 32, *(each.row << 32 | each.at for each in tables)]))
        row, at = key >> 32, key & _AT
        in_file, at_line, index = (_values(each, key) for each in tables)
        file, line = self._file_offsets(row, in_file), np.maximum(at_line, 0)
        calls = read_calls(self._table, self._data, self._functions, row, index)
        place = np.searchsorted(key, calls.row << 32 | calls.at, side="right") - 1
        around = find_calls(calls, calls.row, index[place])
        good = reach_functions(around, calls.good & ((around >= 0) | (index[place] < 0)))
        number = np.append(np.where(good, np.cumsum(good) - 1 + calls_before, -1), -1)  # -1 stays -1
        name = np.append(calls.name, -1)
        call = find_calls(calls, row, index)
        call = np.where(number[call] >= 0, call, -1)
        shown = self._shown(row, file, line, index, call)
        code = _places(row, name[call], file, line, number[call], shown)
        return GoRanges(
            at[shown], code, _places(calls.row, name[around], file[place], line[place], number[around], good)
        )

    def _file_offsets(self, row: np.ndarray, in_file: np.ndarray) -> np.ndarray:
        place = self._functions.unit[row] + in_file
        known = (in_file >= 0) & (place < len(self._files))
        offset = self._files[np.where(known, place, 0)] if len(self._files) else np.full(len(row), _NO_FILE)
        limit = self._table.steps - self._table.files
        return np.where(known & (offset < limit), offset, -1)

    def _shown(
        self, row: np.ndarray, file: np.ndarray, line: np.ndarray, index: np.ndarray, call: np.ndarray
    ) -> np.ndarray:
        """Which ranges are shown. Others count for the range before: those without a line, and where it is not known
        what is inlined, lines of other files than the one that the function begins in: they are inlined."""
        first = np.append(True, row[1:] != row[:-1])
        own = file == file[first][np.cumsum(first) - 1]
        known = (call >= 0) | (index < 0) if self._data else own
        shown: np.ndarray = first | ((line > 0) & (known | own))
        return shown


def _values(steps: GoSteps, key: np.ndarray) -> np.ndarray:
    """The value of each function and address; -1 where there is none."""
    if not len(steps.row):
        return np.full(len(key), -1)
    place = np.searchsorted(steps.row << 32 | steps.at, key, side="right") - 1
    return np.where((place >= 0) & (steps.row[place] == key >> 32), steps.value[place], -1)


def _places(
    row: np.ndarray, name: np.ndarray, file: np.ndarray, line: np.ndarray, call: np.ndarray, kept: np.ndarray
) -> Places:
    return Places(*(column[kept].astype(np.int32) for column in (row, name, file, line, call)))


def _joined(parts: list[Places]) -> Places:
    return Places(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
