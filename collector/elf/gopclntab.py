"""The table of functions that the Go runtime keeps for its stack traces; it survives `strip`.

Format: the section .gopclntab as of Go 1.18 (magic 0xfffffff0) and 1.20 (0xfffffff1) on 64-bit machines; described in
Go's src/runtime/symtab.go (pcHeader, functab, _func) and src/internal/abi/symtab.go.
"""

import re
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from collector.elf.reader import Read
from collector.elf.sections import Section, content, find

GO_1_18, GO_1_20 = 0xFFFFFFF0, 0xFFFFFFF1
MAX_FUNCTIONS = 1 << 20
MAX_SHARED_BYTES = 64 << 20
"""A larger section is not searched for the table."""

_SECTIONS = ".gopclntab", ".data.rel.ro.gopclntab"
_SHARED = ".data.rel.ro"
_BEGIN = re.compile(rb"[\xf0\xf1]\xff{3}\x00\x00\x01\x08")
_HEADER = struct.Struct("<I2xBB8Q")
_MAX_TEXT = 4096
_BLANK = dict.fromkeys(range(32), " ")


class GoTable(NamedTuple):
    """`text_start` is the address that functions count from, or 0 (Go 1.26, or only a relocation has it). What follows
    it up to `functions` are offsets in `data`; `start` and `end` are of the n functions, from the text's start;
    `record` is the offset in `data` of each function's _func, which may be beyond the end. The arrays are int64 (n,).
    """

    data: bytes
    magic: int
    text_start: int
    names: int
    units: int
    files: int
    steps: int
    functions: int
    start: np.ndarray
    end: np.ndarray
    record: np.ndarray


def find_table(read: Read, sections: Sequence[Section]) -> Section | None:
    """Returns the section with the table; None if there is none. Raises OSError.

    In position-independent programs of Go up to 1.25 that the C linker made, the table has no section of its own. Then
    the section begins with the table and ends later.
    """
    own, shared = section(sections), find(sections, _SHARED)
    if own is not None or shared is None or find(sections, ".go.buildinfo") is None:
        return own
    begin = _BEGIN.search(content(read, shared, MAX_SHARED_BYTES))
    if begin is None:
        return None
    at = begin.start()
    return shared._replace(address=shared.address + at, offset=shared.offset + at, size=shared.size - at)


def section(sections: Iterable[Section]) -> Section | None:
    """Returns the section that has the table and nothing else; None if there is none."""
    sections = list(sections)
    return next((table for name in _SECTIONS if (table := find(sections, name)) is not None), None)


def read_table(data: bytes) -> GoTable | None:
    """Returns the table in the bytes of its section; None if it is damaged or of another version."""
    if len(data) < _HEADER.size:
        return None
    magic, step, word, count, _, text_start, names, units, files, steps, functions = _HEADER.unpack_from(data)
    if magic not in (GO_1_18, GO_1_20) or step != 1 or word != 8 or count > MAX_FUNCTIONS:
        return None
    if max(names, units, files, steps) > len(data) or functions + 8 * count + 4 > len(data):
        return None
    rows = np.frombuffer(data, "<u4", 2 * count + 1, functions).astype(np.int64)
    bounds, record = rows[::2], rows[1::2] + functions
    return GoTable(data, magic, text_start, names, units, files, steps, functions, bounds[:-1], bounds[1:], record)


def text(data: bytes, offset: int) -> str:
    """Returns the text at an offset, without control characters; "?" if there is none."""
    end = data.find(b"\0", offset, offset + _MAX_TEXT) if offset >= 0 else -1
    return data[offset:end].decode("utf-8", "replace").translate(_BLANK) if end > offset else "?"
