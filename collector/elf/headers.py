"""The header of an ELF file and its program headers, of 32 and 64 bits, little-endian (System V gABI, elf(5))."""

import struct
from typing import NamedTuple

from collector.elf.error import ElfError
from collector.elf.reader import Read

MAX_SEGMENTS = 128
"""Linkers write some 15."""
EXEC, DYN = 2, 3
LOAD, DYNAMIC, NOTE, TLS, GNU_EH_FRAME = 1, 2, 4, 7, 0x6474E550
X86_64, AARCH64 = 62, 183

_HEADER_64, _HEADER_32 = struct.Struct("<HHIQQQIHHHHHH"), struct.Struct("<HHIIIIIHHHHHH")
_HEADER_OFFSET = 16
_SEGMENT_64, _SEGMENT_32 = struct.Struct("<IIQQQQQQ"), struct.Struct("<8I")
_EXECUTABLE = 1


class ElfHeader(NamedTuple):
    """`kind` is e_type (EXEC, DYN...); offsets are in the file; counts and sizes are of table entries."""

    is_64: bool
    kind: int
    machine: int
    entry: int
    segments_offset: int
    segment_size: int
    segment_count: int
    sections_offset: int
    section_size: int
    section_count: int
    names_index: int


class Segment(NamedTuple):
    """A program header: bytes [offset, offset + size) of the file lie at the ELF virtual address `vaddr`."""

    kind: int  # LOAD, DYNAMIC...
    flags: int
    offset: int
    vaddr: int
    size: int  # in the file
    memory_size: int
    align: int

    @property
    def executable(self) -> bool:
        return bool(self.flags & _EXECUTABLE)


def read_header(read: Read) -> ElfHeader:
    """Raises ElfError, OSError and struct.error."""
    start = read(0, 64)
    if start[:4] != b"\x7fELF":
        raise ElfError(f"expected an ELF file, it starts with {start[:4]!r}")
    if len(start) < 52 or start[4] not in (1, 2) or start[5] != 1:
        raise ElfError("expected a 32-bit or 64-bit little-endian ELF file")
    is_64 = start[4] == 2
    fields = (_HEADER_64 if is_64 else _HEADER_32).unpack_from(start, _HEADER_OFFSET)
    kind, machine, _, entry, segments, sections, _, _, segment_size, segment_count, section_size, count, names = fields
    return ElfHeader(
        is_64, kind, machine, entry, segments, segment_size, segment_count, sections, section_size, count, names
    )


def read_segments(read: Read, header: ElfHeader) -> tuple[Segment, ...]:
    """Returns all program headers in the order of the table. Raises ElfError and OSError."""
    count, layout = header.segment_count, _SEGMENT_64 if header.is_64 else _SEGMENT_32
    if not count:
        return ()
    if count > MAX_SEGMENTS or header.segment_size != layout.size:
        raise ElfError(
            f"{count} program headers of {header.segment_size} bytes: expected at most {MAX_SEGMENTS} of {layout.size}"
        )
    table = read(header.segments_offset, count * layout.size)
    if len(table) < count * layout.size:
        raise ElfError(f"the file ends before its {count} program headers")
    if header.is_64:
        return tuple(
            Segment(kind, flags, offset, vaddr, size, memory_size, align)
            for kind, flags, offset, vaddr, _, size, memory_size, align in layout.iter_unpack(table)
        )
    return tuple(
        Segment(kind, flags, offset, vaddr, size, memory_size, align)
        for kind, offset, vaddr, _, size, memory_size, flags, align in layout.iter_unpack(table)
    )
