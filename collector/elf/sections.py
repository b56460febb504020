"""The sections of an ELF file, by name: symbol tables, debug information, links to other files.

Formats: the System V gABI (elf(5)), little-endian. Every count, offset and name is checked, so that a hostile file has
no sections rather than too many.
"""

import os
import struct
from dataclasses import dataclass

from collector.elf import Read

MAX_SECTIONS = 65_536
MAX_NAMES_BYTES = 16 << 20
SYMTAB, NOBITS, DYNSYM = 2, 8, 11

_HEADER_64 = struct.Struct("<40xQ10xHHH")  # where the table is, bytes and number of its rows, which one has the names
_HEADER_32 = struct.Struct("<32xI10xHHH")
_SECTION_64 = struct.Struct("<IIQQQQIIQQ")
_SECTION_32 = struct.Struct("<10I")
_EXTENDED = 0xFFFF
_EXECINSTR = 4


@dataclass(frozen=True)
class Section:
    """A row of the section header table; `empty` where its bytes are not in this file (a debug file, .bss)."""

    name: str
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int

    @property
    def empty(self) -> bool:
        return self.kind == NOBITS or not self.size

    @property
    def executable(self) -> bool:
        return bool(self.flags & _EXECINSTR)

    @property
    def end(self) -> int:
        return self.address + self.size


def reader(descriptor: int) -> Read:
    """What reads an open file."""
    return lambda offset, size: os.pread(descriptor, size, offset)


def bytes_reader(data: bytes) -> Read:
    """What reads a file that is in memory."""
    return lambda offset, size: data[offset : offset + size]


def read_sections(source: Read) -> list[Section]:
    """All sections in the order of the table; none where the file has none, or lies about them. Raises OSError."""
    start = source(0, 64)
    if len(start) < 64 or start[:4] != b"\x7fELF" or start[5] != 1:
        return []
    header, section = (_HEADER_64, _SECTION_64) if start[4] == 2 else (_HEADER_32, _SECTION_32)
    at, size, count, names = header.unpack_from(start)
    first = source(at, section.size)
    if not at or size < section.size or len(first) < section.size:
        return []
    if count == 0:  # more than fit into the header: they stand in the first section
        count = section.unpack(first)[5]
    if names == _EXTENDED:
        names = section.unpack(first)[6]
    if not names < count <= MAX_SECTIONS:
        return []
    table = source(at, count * size)
    rows = [section.unpack_from(table, i * size) for i in range(len(table) // size)]
    if names >= len(rows):
        return []
    text = source(rows[names][4], min(rows[names][5], MAX_NAMES_BYTES))
    return [Section(_name(text, row[0]), row[1], row[2], *row[3:7]) for row in rows]


def find(sections: list[Section], name: str) -> Section | None:
    """The first section of that name whose bytes are in the file."""
    return next((section for section in sections if section.name == name and not section.empty), None)


def content(source: Read, section: Section | None, limit: int) -> bytes:
    """Its bytes; none where there is no section, or it is larger than `limit`. Raises OSError."""
    return source(section.offset, section.size) if section is not None and section.size <= limit else b""


def _name(text: bytes, at: int) -> str:
    end = text.find(b"\0", at, at + 256)
    return text[at:end].decode("ascii", "replace") if end > at else ""
