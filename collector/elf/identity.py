"""What the collector must know of an ELF file: its identity, and where its code lies.

Formats: the System V gABI (elf(5)); GNU build IDs are notes of type NT_GNU_BUILD_ID (3) by "GNU", Go's are of type 4 by
"Go". Files come from anybody's container: every count and offset in them is checked, and reads are bounded.
"""

import hashlib
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

MAX_HASHED_BYTES = 1 << 30
"""A file without a build ID is hashed up to this size; a larger one is known by its path."""

_MAX_HEADERS = 4096
_MAX_NOTE_BYTES = 1 << 20
_CHUNK = 1 << 20
_PT_LOAD, _PT_NOTE, _SHT_NOTE = 1, 4, 7
_PF_X = 1

Read = Callable[[int, int], bytes]
"""(offset, size) -> at most size bytes from there."""


class ElfError(ValueError):
    """Not an ELF file that can be read; the message says why."""


@dataclass(frozen=True)
class Segment:
    """A loaded part of the file: file bytes [offset, offset + size) lie at ELF virtual address `vaddr`."""

    offset: int
    vaddr: int
    size: int
    executable: bool


@dataclass(frozen=True)
class Elf:
    """`build_id` has the prefix of schemas/ids.md ("gnu:...", "go:..."), or is "" where the file carries none.

    `segments` are those that the file fills, executable ones first; `load_address` is the virtual address of the first
    one in the file, filled or not.
    """

    build_id: str
    segments: tuple[Segment, ...]
    load_address: int

    def vaddr(self, offset: int) -> int | None:
        """The ELF virtual address of a file offset; None where no segment loads it."""
        for segment in self.segments:  # those with code come first
            # The kernel maps whole pages, so a mapping may begin a little before its segment does.
            if segment.offset & ~0xFFF <= offset < segment.offset + segment.size:
                return segment.vaddr + offset - segment.offset
        return None


@dataclass(frozen=True)
class _Layout:
    header: str  # e_phoff, e_shoff, (flags, ehsize), e_phentsize, e_phnum, e_shentsize, e_shnum, at `header_at`
    header_at: int
    program: str  # in the order of `program_fields`
    program_fields: tuple[str, ...]
    section: str  # type, offset, size
    word: int


_ELF64 = _Layout("<QQIHHHHH", 32, "<IIQQQQ", ("type", "flags", "offset", "vaddr", "paddr", "size"), "<4xI16xQQ", 8)
_ELF32 = _Layout(
    "<IIIHHHHH", 28, "<IIIIIII", ("type", "offset", "vaddr", "paddr", "size", "mem", "flags"), "<4xI8xII", 4
)


def read_file(descriptor: int) -> Elf:
    """Reads an open file. Raises ElfError, also where it is not a regular file or cannot be read."""
    return read(lambda offset, size: os.pread(descriptor, size, offset))


def read_bytes(data: bytes) -> Elf:
    """Reads a file that is in memory (the vDSO). Raises ElfError."""
    return read(lambda offset, size: data[offset : offset + size])


def read(source: Read) -> Elf:
    """Reads what `source` gives. Raises ElfError."""
    try:
        return _read(source)
    except (OSError, OverflowError, struct.error) as error:
        raise ElfError(f"the ELF file cannot be read: {error}") from error


def file_hash(descriptor: int) -> str:
    """ "sha256:<hex>" of an open file, or "" where it is larger than MAX_HASHED_BYTES. Raises OSError."""
    digest, offset = hashlib.sha256(), 0
    while chunk := os.pread(descriptor, _CHUNK, offset):
        digest.update(chunk)
        offset += len(chunk)
        if offset > MAX_HASHED_BYTES:
            return ""
    return f"sha256:{digest.hexdigest()}"


def notes(data: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """(name, type, description) of each note; stops at the first that does not fit."""
    at = 0
    while at + 12 <= len(data):
        name_size, size, kind = struct.unpack_from("<III", data, at)
        name_at = at + 12
        description_at = name_at + (name_size + 3 & ~3)
        if description_at + size > len(data):
            return
        yield data[name_at : name_at + name_size].rstrip(b"\0"), kind, data[description_at : description_at + size]
        at = description_at + (size + 3 & ~3)


def build_id(data: bytes) -> str:
    """The build ID among notes, with its prefix; GNU's before Go's; "" where there is none."""
    go = ""
    for name, kind, description in notes(data):
        if name == b"GNU" and kind == 3 and 1 <= len(description) <= 64:
            return f"gnu:{description.hex()}"
        if name == b"Go" and kind == 4 and 1 <= len(description) <= 256:
            go = f"go:{description.decode('ascii', 'replace')}"
    return go


def _read(source: Read) -> Elf:
    start = source(0, 64)
    if start[:4] != b"\x7fELF":
        raise ElfError(f"expected an ELF file, it starts with {start[:4]!r}")
    if len(start) < 52 or start[4] not in (1, 2) or start[5] != 1:
        raise ElfError("expected a 32 or 64 bit little-endian ELF file")
    layout = _ELF64 if start[4] == 2 else _ELF32
    header = struct.unpack_from(layout.header, start, layout.header_at)
    program_at, section_at, _, _, program_size, program_count, section_size, section_count = header
    programs = list(_programs(source, layout, program_at, program_size, program_count))
    loads = [p for p in programs if p["type"] == _PT_LOAD]
    segments = tuple(Segment(p["offset"], p["vaddr"], p["size"], bool(p["flags"] & _PF_X)) for p in loads if p["size"])
    found = [build_id(source(p["offset"], min(p["size"], _MAX_NOTE_BYTES))) for p in programs if p["type"] == _PT_NOTE]
    if not any(found):
        sections = _note_sections(source, layout, section_at, section_size, section_count)
        found = [build_id(source(offset, min(size, _MAX_NOTE_BYTES))) for offset, size in sections]
    identity = min(filter(None, found), key=lambda text: not text.startswith("gnu:"), default="")
    return Elf(
        identity, tuple(sorted(segments, key=lambda segment: not segment.executable)), loads[0]["vaddr"] if loads else 0
    )


def _programs(source: Read, layout: _Layout, at: int, size: int, count: int) -> Iterator[dict[str, int]]:
    if not count:
        return
    wanted = struct.calcsize(layout.program)
    if count > _MAX_HEADERS or size < wanted:
        raise ElfError(f"{count} program headers of {size} bytes: expected at most {_MAX_HEADERS} of {wanted} or more")
    table = source(at, count * size)
    if len(table) < count * size:
        raise ElfError(f"the file ends before its {count} program headers")
    for i in range(count):
        yield dict(zip(layout.program_fields, struct.unpack_from(layout.program, table, i * size), strict=True))


def _note_sections(source: Read, layout: _Layout, at: int, size: int, count: int) -> Iterator[tuple[int, int]]:
    """(offset, size) of the sections with notes; a table that does not fit the file is not an error, just no help."""
    if not count or count > _MAX_HEADERS or size < struct.calcsize(layout.section):
        return
    table = source(at, count * size)
    for i in range(len(table) // size):
        kind, offset, length = struct.unpack_from(layout.section, table, i * size)
        if kind == _SHT_NOTE:
            yield offset, length
