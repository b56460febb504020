"""The sections of an ELF file: symbol tables, debug information, links to other files (System V gABI, elf(5)).

A table of sections that is damaged reads as no sections: debuggers need it, programs do not.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from collector.elf.error import ElfError
from collector.elf.headers import ElfHeader, read_header
from collector.elf.reader import Read

MAX_SECTIONS = 4096
"""Linkers write less than a hundred."""
MAX_NAMES_BYTES = 1 << 20
SYMTAB, NOTE, NOBITS, DYNSYM = 2, 7, 8, 11
COMPRESSED = 0x800

_SECTION_64, _SECTION_32 = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<10I")
_EXECUTABLE = 4
_MAX_NAME = 256


class Section(NamedTuple):
    """A row of the section header table; `empty` if its bytes are not in this file (a debug file, .bss)."""

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
        return bool(self.flags & _EXECUTABLE)

    @property
    def end(self) -> int:
        return self.address + self.size


def read_sections(read: Read) -> list[Section]:
    """Returns all sections in the order of the table; [] if this is not an ELF file. Raises OSError."""
    try:
        return sections_of(read, read_header(read))
    except (ElfError, struct.error):
        return []


def sections_of(read: Read, header: ElfHeader) -> list[Section]:
    """Returns all sections in the order of the table; [] if the table does not fit the file. Raises OSError."""
    layout = _SECTION_64 if header.is_64 else _SECTION_32
    if not header.sections_offset or header.section_size != layout.size:
        return []
    count, names = header.section_count, header.names_index
    if not names < count <= MAX_SECTIONS:
        return []
    table = read(header.sections_offset, count * layout.size)
    if len(table) < count * layout.size:
        return []
    rows = list(layout.iter_unpack(table))
    text = read(rows[names][4], min(rows[names][5], MAX_NAMES_BYTES))
    return [Section(_name(text, row[0]), *row[1:7]) for row in rows]


def find(sections: Iterable[Section], name: str) -> Section | None:
    """Returns the first section of that name whose bytes are in the file."""
    return next((section for section in sections if section.name == name and not section.empty), None)


def content(read: Read, section: Section | None, limit: int) -> bytes:
    """Returns the bytes of a section; b"" without a section, or if it is larger than `limit`. Raises OSError."""
    return read(section.offset, section.size) if section is not None and section.size <= limit else b""


def at(read: Read, sections: Iterable[Section], address: int, size: int) -> bytes:
    """Returns at most `size` bytes from an ELF virtual address on, up to the end of the section there; b"" if the file
    has none. Raises OSError."""
    for section in sections:
        if section.address and section.kind != NOBITS and section.address <= address < section.end:
            return read(section.offset + address - section.address, min(size, section.end - address))
    return b""


def _name(text: bytes, start: int) -> str:
    end = text.find(b"\0", start, start + _MAX_NAME)
    return text[start:end].decode("ascii", "replace") if end > start else ""
