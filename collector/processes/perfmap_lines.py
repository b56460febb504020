"""Reads lines of a perf map, which may hold anything.

Format (tools/perf/Documentation/jit-interface.txt in Linux): a line an area, `START SIZE NAME`, start and size in
hexadecimal.
"""

import os
import re
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from collector.processes.jit_name import JitName, parse_name

MAX_LINE = 1100
_CHECKED = 4096  # bytes
_PADDING = b"\n" * 64
_HEX = np.full(256, 255, np.uint8)
_HEX[[ord(c) for c in "0123456789abcdefABCDEF"]] = [*range(16), *range(10, 16)]
_BLANK = np.isin(np.arange(256), [9, 32])
_LINE = re.compile(rb"(?:0x)?([0-9a-fA-F]+)[ \t]+(?:0x)?([0-9a-fA-F]+)[ \t]+([^ \t\n][^\n]*)")


class PerfMapLines(NamedTuple):
    """The areas (none empty) of the well-formed lines in a part of a perf map."""

    used: int  # bytes of the part that were read
    more: bool  # whether there is more to read
    start: np.ndarray  # uint64 (n,)
    size: np.ndarray  # uint64 (n,)
    offset: np.ndarray  # uint32 (n,): of each line in the part
    checksum: int | None  # of the file up to what was read; None: what is before the part is no longer what it was


def read_lines(file: int, offset: int, most_bytes: int, most_lines: int, checksum: int | None) -> PerfMapLines:
    """Reads the lines from an offset on, if the file up to there has that checksum (None: any). Raises OSError."""
    if checksum is not None and checksum != _checksum(file, offset):
        nothing = np.empty(0, np.uint64)
        return PerfMapLines(0, False, nothing, nothing, nothing.astype(np.uint32), None)
    data = os.pread(file, most_bytes, offset)
    all_ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    ends = all_ends[:most_lines]
    if not len(ends):
        used = len(data) if len(data) > 2 * MAX_LINE else 0  # no line of ours is that long
        nothing = np.empty(0, np.uint64)
        read = _checksum(file, offset + used)
        return PerfMapLines(used, used == most_bytes > 0, nothing, nothing, nothing.astype(np.uint32), read)
    used = int(ends[-1]) + 1
    start, size, begin = _parse(data[:used], ends)
    more = len(all_ends) > most_lines or len(data) == most_bytes
    return PerfMapLines(used, more, start, size, begin.astype(np.uint32), _checksum(file, offset + used))


def read_names(file: int, offsets: Sequence[int], addresses: Sequence[int]) -> list[JitName | None]:
    """Returns the name in the line at each offset; None where it says nothing (any more) of that address. Raises
    OSError."""
    return [_name(file, offset, address) for offset, address in zip(offsets, addresses, strict=True)]


def _checksum(file: int, end: int) -> int:
    """Returns the checksum of the first and the last bytes before `end`."""
    length = min(end, _CHECKED)
    return zlib.crc32(os.pread(file, length, end - length), zlib.crc32(os.pread(file, length, 0)))


def _name(file: int, offset: int, address: int) -> JitName | None:
    match = _LINE.match(os.pread(file, MAX_LINE, offset))
    if match is None or not 0 <= address - int(match[1][:16], 16) < int(match[2][:16], 16):
        return None
    text = match[3].rstrip()
    return parse_name(text.decode("utf-8", "replace")) if text else None


def _parse(data: bytes, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start and size (uint64) of the areas of well-formed lines, and where in the data each line begins (int64).
    `ends`: where newlines are, the last one at the end of the data."""
    text = np.frombuffer(data + _PADDING, np.uint8)
    begins = np.append(0, ends[:-1] + 1)
    start, at, fine = _hexadecimal(text, begins)
    size, at, fine_too = _hexadecimal(text, at)
    fine &= fine_too & (at < ends) & (size > 0) & (size < 1 << 32) & (start < np.uint64((1 << 64) - (1 << 32)))
    return start[fine], size[fine], begins[fine]


def _hexadecimal(text: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns three columns for the places: the number there (uint64), the place after the number and its blanks, and
    whether there is a number of at most 16 digits with a blank after it."""
    at = at + 2 * ((text[at] == ord("0")) & (text[at + 1] | 32 == ord("x")))
    number, first = np.zeros(len(at), np.uint64), at
    for _ in range(16):
        digit = _HEX[text[at]]
        more = digit < 16
        if not more.any():
            break
        number = np.where(more, number << np.uint64(4) | digit, number)
        at = at + more
    behind = at
    for _ in range(8):
        blank = _BLANK[text[at]]
        if not blank.any():
            break
        at = at + blank
    return number, at, (behind > first) & (at > behind)
