"""What identifies an ELF file, and where its code lies.

GNU build IDs are notes of type NT_GNU_BUILD_ID (3) by "GNU", Go's are of type 4 by "Go".
"""

import hashlib
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import xxhash

from collector.elf import file, headers, sections
from collector.elf.error import reading
from collector.elf.headers import EXEC, LOAD, ElfHeader, Segment
from collector.elf.reader import Read, bytes_reader, file_reader
from collector.elf.sections import Section

MAX_NOTES = 4096
MAX_NOTE_BYTES = 1 << 20
"""The most bytes of the notes in all segments, or in all sections, of a file."""

HASHED = "htlhash:"
MAX_CODE_BYTES = 4 << 20
"""So much of a file's code is hashed. Larger code is hashed in blocks that are spread over it evenly."""

_PAGE = 4096
_BLOCK_BYTES = 1 << 16


class Note(NamedTuple):
    name: bytes
    kind: int
    description: bytes


@dataclass(frozen=True)
class ElfIdentity:
    """`build_id` has the prefix of schemas/ids.md ("gnu:...", "go:..."), or is "" if the file has none.

    `segments` are the loaded ones that the file fills, executable ones first; `load_address` is the virtual
    address of the first loaded segment, filled or not; a file that is `fixed` is loaded at these addresses.
    """

    build_id: str
    segments: tuple[Segment, ...]
    load_address: int
    fixed: bool
    headers_end: int  # of the ELF header, and of the program headers where these follow it

    def segments_at(self, offset: int) -> list[Segment]:
        """Returns the segments that may load a file offset, by address: those with code, or without such ones the
        others. The kernel maps whole pages, so a mapping may begin a little before its segment does, and may be of
        several ones that share a page."""
        there = [part for part in self.segments if part.offset & -_PAGE <= offset < part.offset + part.size]
        return sorted([part for part in there if part.executable] or there, key=lambda part: part.vaddr)

    def vaddr(self, offset: int) -> int | None:
        """Returns the ELF virtual address of a file offset, the lowest of several; None if no segment loads it."""
        return next((part.vaddr + offset - part.offset for part in self.segments_at(offset)), None)


def read_file(descriptor: int) -> ElfIdentity:
    """Reads an open file. Raises ElfError, also if it is not a regular file or cannot be read."""
    return read(file_reader(descriptor))


def read_bytes(data: bytes) -> ElfIdentity:
    """Reads a file that is in memory (the vDSO). Raises ElfError."""
    return read(bytes_reader(data))


def read(source: Read) -> ElfIdentity:
    """Reads what `source` gives. Raises ElfError."""
    elf = file.parse(source)
    loads = [segment for segment in elf.segments if segment.kind == LOAD]
    with reading():
        identity = _build_id(elf)
    segments = sorted((load for load in loads if load.size), key=lambda load: not load.executable)
    load_address = loads[0].vaddr if loads else 0
    return ElfIdentity(identity, tuple(segments), load_address, elf.header.kind == EXEC, _headers_end(elf.header))


def file_hash(descriptor: int) -> str:
    """Returns "htlhash:<hex>" of an open file: a hash of its head, tail and length. Raises OSError.

    It is OpenTelemetry's process.executable.build_id.htlhash (opentelemetry.io/docs/specs/otel/profiles/mappings).
    """
    size = os.fstat(descriptor).st_size
    head, tail = os.pread(descriptor, _PAGE, 0), os.pread(descriptor, _PAGE, max(0, size - _PAGE))
    return f"{HASHED}{hashlib.sha256(head + tail + struct.pack('>Q', size)).digest()[:16].hex()}"


def code_hash(read: Read, identity: ElfIdentity) -> str:
    """Returns a hash (hex) of the code in a file and of where it lies, which is the same before and after `strip`.
    Raises OSError."""
    code = [segment for segment in identity.segments if segment.executable]
    total = sum(segment.size for segment in code)
    digest = xxhash.xxh3_64()
    for segment in code:
        skipped = max(0, min(identity.headers_end - segment.offset, segment.size))
        start, size = segment.offset + skipped, segment.size - skipped
        digest.update(struct.pack("<QQ", segment.vaddr, segment.size))
        hashed = size if total <= MAX_CODE_BYTES else size * MAX_CODE_BYTES // total
        length = size if hashed == size else min(hashed, _BLOCK_BYTES)
        blocks = hashed // length if length else 0
        for number in range(blocks):
            digest.update(read(start + number * (size - length) // max(1, blocks - 1), length))
    return digest.hexdigest()


def notes(data: bytes) -> Iterator[Note]:
    """Yields each note; stops at the first that does not fit."""
    offset = 0
    while offset + 12 <= len(data):
        name_size, size, kind = struct.unpack_from("<III", data, offset)
        name = offset + 12
        description = name + (name_size + 3 & ~3)
        if description + size > len(data):
            return
        yield Note(data[name : name + name_size].rstrip(b"\0"), kind, data[description : description + size])
        offset = description + (size + 3 & ~3)


def build_id(data: bytes) -> str:
    """Returns the build ID among notes with its prefix, GNU's before Go's; "" if there is none."""
    return _build_id_among(notes(data))


def _build_id_among(notes: Iterable[Note]) -> str:
    go = ""
    for name, kind, description in islice(notes, MAX_NOTES):
        if name == b"GNU" and kind == 3 and 1 <= len(description) <= 64:
            return f"gnu:{description.hex()}"
        if name == b"Go" and kind == 4 and 1 <= len(description) <= 256:
            go = f"go:{description.decode('ascii', 'replace')}"
    return go


def _headers_end(header: ElfHeader) -> int:
    start = 64 if header.is_64 else 52
    return start + (header.segment_count * header.segment_size if header.segments_offset == start else 0)


def _build_id(elf: file.ElfFile) -> str:
    """The build ID by segments; by sections if no segment has one."""
    segments = (part for part in elf.segments if part.kind == headers.NOTE)
    return _build_id_among(_notes_of(elf.read, segments)) or _build_id_among(
        _notes_of(elf.read, (part for part in elf.sections if part.kind == sections.NOTE))
    )


def _notes_of(read: Read, parts: Iterable[Segment | Section]) -> Iterator[Note]:
    """The notes of all parts, which may lie in the same bytes."""
    left = MAX_NOTE_BYTES
    for part in parts:
        data = read(part.offset, min(part.size, left))
        left -= len(data)
        yield from notes(data)
