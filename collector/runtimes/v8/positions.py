"""V8's tables of source positions (src/codegen/source-position-table.cc).

Each entry is two numbers of 7 bits a byte, lowest first: the difference of offsets in the code, above one bit of flags,
or two from V8 14 on; and the difference of positions, above its sign. A position (src/codegen/source-position.h) has a
character of the script, counted from 1, in bits 1 to 30, and from bit 31 on the number of the call that was replaced by
this code; 0: it was not inlined.
"""

from typing import NamedTuple

import numpy as np

MAX_TABLE_BYTES = 1 << 16
_MORE, _MOST_BYTES = 0x80, 9  # of a number
_CHARACTER, _INLINING = (1 << 30) - 1, (1 << 16) - 1
_NONE = np.empty(0, np.int64)


class Positions(NamedTuple):
    """The k entries of a table."""

    offset: np.ndarray  # int64 (k,), ascending
    character: np.ndarray  # int64 (k,): of the script, from 0; -1: unknown
    inlining: np.ndarray  # int64 (k,): of the call, from 1; 0: the code was not inlined


def read_numbers(data: bytes) -> np.ndarray:
    """Decodes numbers without their signs: int64. Those that are too long are 0."""
    raw = np.frombuffer(data, np.uint8).astype(np.int64)
    ends = np.flatnonzero(raw < _MORE)
    if not len(ends):
        return _NONE
    raw = raw[: ends[-1] + 1]
    first = np.append(0, ends[:-1] + 1)
    size = ends - first + 1
    place = np.arange(len(raw)) - np.repeat(first, size)
    parts = np.where(place < _MOST_BYTES, raw & (_MORE - 1), 0) << 7 * np.minimum(place, _MOST_BYTES - 1)
    return np.where(size > _MOST_BYTES, 0, np.add.reduceat(parts, first))


def read_positions(table: bytes, flags: int) -> Positions:
    """Decodes a table with so many bits of flags; damaged ones give wrong positions, no errors."""
    numbers = read_numbers(table)
    numbers = numbers[: len(numbers) & ~1].reshape(-1, 2)
    step, change = numbers[:, 0] >> flags, numbers[:, 1] >> 1 ^ -(numbers[:, 1] & 1)
    offset = np.cumsum(step) - 1  # before the first instruction lies the entry of the function
    return split(offset, np.cumsum(change))


def split(offset: np.ndarray, position: np.ndarray) -> Positions:
    """Divides positions (int64) into their parts."""
    return Positions(offset, (position >> 1 & _CHARACTER) - 1, position >> 31 & _INLINING)
