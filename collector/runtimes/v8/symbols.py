"""Finds V8 in an ELF file: its layout, and the code of its builtins.

The symbols that a file exports tell the layout, also if it is stripped. Builtins are machine code that V8's own
compiler makes when V8 is built (src/snapshot/embedded/). They have no call frame information: they are the widest gap
between functions that have it.
"""

import struct
from dataclasses import dataclass

import numpy as np

from collector.elf import dynamic, eh_frame_hdr
from collector.elf.dynamic import Dynamic
from collector.elf.eh_frame_hdr import HEADER_BYTES
from collector.elf.error import ElfError
from collector.elf.headers import GNU_EH_FRAME
from collector.elf.reader import Read
from collector.runtimes.v8.layout import V8Layout, V8LayoutError, layout
from collector.unwind.cfi import code_file, eh_frame
from collector.unwind.cfi.code_file import CodeFile

_MAJOR, _MINOR = b"_ZN2v88internal7Version6major_E", b"_ZN2v88internal7Version6minor_E"
_LEAST_BYTES, _MOST_BYTES = 512 << 10, 32 << 20
_MOST_CONSTANT_BYTES, _CHUNK = 256 << 20, 1 << 20
_FIRST_SIZES = (
    bytes([1, 1, 1, 1, 1, 2, 3, 4, 5, 5, 6]),
    bytes([1, 1, 1, 1, 1, 3, 5, 7, 9, 7, 9]),
    bytes([1, 1, 1, 1, 1, 5, 9, 13, 17, 11, 15]),
)
_MOST_FUNCTIONS = 1 << 19
"""Node 26 has 130,000 functions. The size of the builtins is 1.2 MB in Node 16 and 2.2 MB in Node 26."""


@dataclass(frozen=True)
class Engine:
    """`builtins`: the ELF virtual addresses [start, end) of their code. `bytecode_sizes`: those of all bytecodes, with
    operands of one, two and four bytes; empty if they were not found."""

    layout: V8Layout
    builtins: tuple[int, int]
    bytecode_sizes: bytes = b""


def find_engine(source: Read) -> Engine | None:
    """Returns the V8 in a file; None if there is none. Raises V8LayoutError if its frames cannot be read, OSError."""
    try:
        elf = code_file.parse(source)
        exports = Dynamic(elf, dict(dynamic.entries(elf)))
        version = [_number(exports, name) for name in (_MAJOR, _MINOR)]
        if version[0] is None or version[1] is None:
            return None
        found = layout((version[0], version[1]), lambda name: _number(exports, b"v8dbg_" + name.encode()))
        return Engine(found, _builtins(elf), _bytecode_sizes(elf))
    except (ElfError, struct.error, OverflowError):  # it is damaged
        return None


def _number(exports: Dynamic, name: bytes) -> int | None:
    """The value of an int; None if the file has none of that name. One that lies behind the bytes of the file is 0."""
    symbol = exports.find(name)
    data = exports.elf.at(symbol.value, 4) if symbol is not None else None
    return None if data is None else int.from_bytes(data, "little", signed=True) if len(data) == 4 else 0


def _bytecode_sizes(elf: CodeFile) -> bytes:
    """Finds the three tables (kBytecodeSizes in src/interpreter/bytecodes.cc), which follow each other, by the first
    bytecodes, which have no operands, or up to six: files of Linux distributions have no symbol for them."""
    section = next((each for each in elf.sections if each.name == ".rodata"), None)
    for start in (
        range(section.address, min(section.end, section.address + _MOST_CONSTANT_BYTES), _CHUNK) if section else ()
    ):
        data = elf.at(start, _CHUNK + 3 * 256)
        at = -1
        while (at := data.find(_FIRST_SIZES[0], at + 1)) >= 0:
            count = data.find(_FIRST_SIZES[1], at, at + 256) - at
            if count > 0 and data.startswith(_FIRST_SIZES[2], at + 2 * count):
                return data[at : at + 3 * count]
    return b""


def _builtins(elf: CodeFile) -> tuple[int, int]:
    """Raises V8LayoutError, ElfError, OSError, OverflowError, struct.error."""
    segment = next((segment for segment in elf.segments if segment.kind == GNU_EH_FRAME), None)
    count = eh_frame_hdr.entry_count(elf.at(segment.vaddr, HEADER_BYTES)) if segment is not None else 0
    table = eh_frame.search_table(elf) if 0 < count <= _MOST_FUNCTIONS else None
    widest, row, end = 0, 0, 0
    for section in elf.sections if table is not None else ():
        if table is None or not section.executable or section.empty:
            continue
        first, last = np.searchsorted(table.function, (section.address, section.end))
        if first < last:
            following = np.append(table.function[first + 1 : last], section.end)
            at = int(np.argmax(following - table.function[first:last]))
            if (gap := int(following[at] - table.function[first + at])) > widest:
                widest, row, end = gap, int(first) + at, int(following[at])
    if table is None or widest < _LEAST_BYTES:
        raise V8LayoutError("expected a gap in the call frame information for the builtins")
    # A record: its length, where its CIE is, the start of the function from here, its length.
    (length,) = struct.unpack("<12xI", elf.at(int(table.fde[row]), 16))
    start = int(table.function[row]) + length
    if not _LEAST_BYTES <= end - start <= _MOST_BYTES:
        raise V8LayoutError("expected other sizes of the builtins")
    return start, end
