"""The line of an instruction of CPython, by a table of its code object.

Formats:
- up to 3.9 (Objects/lnotab_notes.txt): each entry has the bytes of code before it, and the difference of lines, signed;
- 3.10 (Objects/lnotab_notes.txt): each entry has the bytes of its code, and the difference of lines, -128 for no line;
- since 3.11 (Objects/locations.md, since 3.14 InternalDocs/code_objects.md): each entry begins with a byte whose
  highest bit is set; bits 3..6 are its kind, bits 0..2 its code units (of two bytes) - 1. In kinds 13 and 14 the
  difference of lines follows as a signed varint; kinds 10 to 12 are differences 0 to 2; all others stay in the line.
"""

import enum
import functools

import numpy as np

from collector.runtimes.lines import CodeLines, code_lines
from icestream.columns.index_ranges import starts

MAX_TABLE_BYTES = 1 << 16  # some thousand lines
_NO_COLUMNS, _LONG = 13, 14
_VARINT_BYTES = 6
_CACHED = 4096  # tables; most have less than 200 bytes
_NO_LINE = -128


class LineFormat(enum.IntEnum):
    LNOTAB = enum.auto()  # up to 3.9
    RANGES = enum.auto()  # 3.10
    LOCATIONS = enum.auto()


@functools.lru_cache(maxsize=_CACHED)
def parse_lines(line_format: LineFormat, table: bytes, first_line: int) -> CodeLines:
    """Decodes a table; damaged ones give wrong lines, no errors. Processes of the same program share the result."""
    if line_format is LineFormat.LOCATIONS:
        size, lines = _locations(np.frombuffer(table, np.uint8).astype(np.int64), first_line)
        return code_lines(2 * starts(size), lines)
    size, difference = np.frombuffer(table, np.uint8, len(table) & ~1).reshape(-1, 2).T.astype(np.int64)
    difference = difference.astype(np.int8).astype(np.int64)
    if line_format is LineFormat.LNOTAB:
        at = np.cumsum(np.append(0, size))
        return code_lines(at, first_line + np.cumsum(np.append(0, difference)))
    none = difference == _NO_LINE
    lines = first_line + np.cumsum(np.where(none, 0, difference))
    return code_lines(starts(size) // 2, np.where(none, 0, lines))


def _locations(data: np.ndarray, first_line: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the code units and the line of each entry."""
    entries = np.flatnonzero(data & 0x80)
    kind = data[entries] >> 3 & 15
    difference = np.where((kind >= 10) & (kind <= 12), kind - 10, 0)
    follows = (kind == _NO_COLUMNS) | (kind == _LONG)
    difference[follows] = _signed_varints(data, entries[follows] + 1)
    return (data[entries] & 7) + 1, first_line + np.cumsum(difference)


def _signed_varints(data: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Decodes the numbers that begin at these offsets: 6 bits in a byte, lowest first; bit 6 says that more bytes
    follow. Bit 0 of the number is the sign."""
    value, going = np.zeros(len(at), np.int64), np.ones(len(at), bool)
    padded = np.concatenate([data, np.zeros(_VARINT_BYTES + 1, np.int64)])
    for i in range(_VARINT_BYTES):
        if not going.any():
            break
        byte = padded[at + i]
        value += np.where(going, (byte & 63) << 6 * i, 0)
        going &= (byte & 0xC0) == 0x40
    return np.where(value & 1, -(value >> 1), value >> 1)
