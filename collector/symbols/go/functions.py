"""The functions of a Go program, and where their tables are: what a line of stack traces needs of runtime._func.

Format: Go's src/runtime/runtime2.go (_func), src/internal/abi/symtab.go (PCDATA, FUNCDATA).
"""

from typing import NamedTuple

import numpy as np

from collector.elf.gopclntab import GoTable

_NAME, _FILES, _LINES, _VALUES, _UNIT, _DATA_COUNT, _BYTES = 4, 20, 24, 28, 32, 43, 44
_INLINED_INDEX = 2  # PCDATA_InlTreeIndex
_INLINED_CALLS = 3  # FUNCDATA_InlTree
_NONE = 0xFFFFFFFF


class GoFunctions(NamedTuple):
    """int64 (n,), by start; no two overlap. Tables that do not exist are at 0, inlined calls at -1."""

    start: np.ndarray  # from the text's start, as `end`
    end: np.ndarray
    name: np.ndarray  # offset in the names
    unit: np.ndarray  # the first of the compilation unit's files
    files: np.ndarray  # offset of the table of files, as the next two
    lines: np.ndarray
    inlined: np.ndarray  # of the inlined call that an address is in
    calls: np.ndarray  # offset in the functions' data


def read_functions(table: GoTable, size: int, with_calls: bool) -> GoFunctions:
    """Returns the functions in the first `size` bytes of code. `with_calls`: the functions' data are known."""
    begun = np.maximum.accumulate(np.append(0, table.end))[:-1]
    fits = table.record + (_BYTES if with_calls else _UNIT + 4) <= len(table.data)
    good = fits & (table.start >= begun) & (table.start < table.end) & (table.end <= size)
    record = table.record[good]
    data = np.frombuffer(table.data, np.uint8)
    name, files, lines, unit = (_u4(data, record + field) for field in (_NAME, _FILES, _LINES, _UNIT))
    inlined, calls = np.zeros(len(record), np.int64), np.full(len(record), -1)
    if with_calls:
        values = _u4(data, record + _VALUES)
        known = (values > _INLINED_INDEX) & (data[record + _DATA_COUNT] > _INLINED_CALLS)
        offset = _u4(data, np.where(known, record + _BYTES + 4 * (values + _INLINED_CALLS), 0))
        known &= offset != _NONE
        inlined = np.where(known, _u4(data, np.where(known, record + _BYTES + 4 * _INLINED_INDEX, 0)), 0)
        calls = np.where(known, offset, -1)
    return GoFunctions(table.start[good], table.end[good], name, unit, files, lines, inlined, calls)


def _u4(data: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The 32-bit numbers at offsets; 0 beyond the end of the data, which have 4 bytes at least."""
    fits = at + 4 <= len(data)
    number = data[np.where(fits, at, 0)[:, None] + np.arange(4)].view("<u4")[:, 0]
    return np.where(fits, number, 0).astype(np.int64)
