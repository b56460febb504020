"""The calls that the Go compiler inlined: by the table that a function has of them (runtime.inlinedCall).

A call has the function's name, and an address in the function around it that has the file and line of the call. The
call at that address, if it has one, is the one around. Format: Go's src/runtime/symtabinl.go, as of Go 1.20.
"""

from typing import NamedTuple

import numpy as np

from collector.elf.gopclntab import GoTable
from collector.symbols.go.functions import GoFunctions

MAX_CALLS = 1 << 20
"""The most inlined calls of one function."""
MAX_DEPTH = 100
"""The deepest calls in calls; deeper ones are not believed."""

_CALL = np.dtype([("kind", "u1"), ("blank", "u1", 3), ("name", "<i4"), ("at", "<i4"), ("line", "<i4")])


class Calls(NamedTuple):
    """Inlined calls of several functions, sorted by `key`. int64 (m,), `good` is bool."""

    key: np.ndarray  # made of the function's row and the call's index
    row: np.ndarray
    name: np.ndarray  # offset in the names
    at: np.ndarray  # where in the function the file and line of the call are
    good: np.ndarray  # whether the call can be


def read_calls(table: GoTable, data: bytes, functions: GoFunctions, row: np.ndarray, index: np.ndarray) -> Calls:
    """Returns the calls of functions `row` with indexes `index` in their tables, each once. (k,); indexes below 0 are
    no calls."""
    key = np.unique(call_keys(row, index)[index >= 0])
    row, index = key // MAX_CALLS, key % MAX_CALLS
    at = functions.calls[row] + _CALL.itemsize * index
    fits = (functions.calls[row] >= 0) & (at + _CALL.itemsize <= len(data))
    content = np.frombuffer(data, np.uint8)
    rows = (
        content[np.where(fits, at, 0)[:, None] + np.arange(_CALL.itemsize)] if fits.any() else np.zeros((len(key), 16))
    )
    calls = np.ascontiguousarray(rows, np.uint8).view(_CALL)[:, 0]
    name, where = calls["name"].astype(np.int64), calls["at"].astype(np.int64)
    names = np.frombuffer(table.data, np.uint8)
    fits &= (name >= 0) & (name < table.units - table.names) & ~calls["blank"].any(axis=1)
    begin = np.where(fits, table.names + name, 1)
    fits &= ((name == 0) | (names[begin - 1] == 0)) & (names[begin] != 0)
    fits &= (where >= 0) & (where < functions.end[row] - functions.start[row])
    return Calls(key, row, np.where(fits, name, 0), np.where(fits, where, 0), fits)


def call_keys(row: np.ndarray, index: np.ndarray) -> np.ndarray:
    return row * MAX_CALLS + np.where(index < MAX_CALLS, index, MAX_CALLS - 1)


def find_calls(calls: Calls, row: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Returns the places in `calls` of calls (k,); -1 where `index` is below 0 or there is no such call."""
    if not len(calls.key):
        return np.full(len(row), -1)
    key = call_keys(row, index)
    place = np.minimum(np.searchsorted(calls.key, key), len(calls.key) - 1)
    return np.where((index >= 0) & (calls.key[place] == key), place, -1)


def reach_functions(around: np.ndarray, good: np.ndarray) -> np.ndarray:
    """Returns which calls (bool) lead to their function through calls that are good, at most MAX_DEPTH of them. Others
    are around themselves: Go 1.23 makes such tables, too. `around`: place of the call around each; -1 if there is none.
    """
    reached: np.ndarray = good & (around < 0)
    for _ in range(MAX_DEPTH - 1):
        more = good & (around >= 0) & reached[around]
        if not (more & ~reached).any():
            break
        reached |= more
    return reached
