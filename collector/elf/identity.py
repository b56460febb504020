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

from collector.elf import file, headers, sections
from collector.elf.error import reading
from collector.elf.headers import LOAD, Segment
from collector.elf.reader import Read, bytes_reader, file_reader
from collector.elf.sections import Section

MAX_NOTES = 4096
MAX_NOTE_BYTES = 1 << 20
"""Of all segments, or of all sections, of a file together."""

_PAGE = 4096


class Note(NamedTuple):
    name: bytes
    kind: int
    description: bytes


@dataclass(frozen=True)
class ElfIdentity:
    """`build_id` has the prefix of schemas/ids.md ("gnu:...", "go:..."), or is "" if the file has none.

    `segments` are the loaded ones that the file fills, executable ones first; `load_address` is the virtual
    address of the first loaded segment, filled or not.
    """

    build_id: str
    segments: tuple[Segment, ...]
    load_address: int

    def vaddr(self, offset: int) -> int | None:
        """Returns the ELF virtual address of a file offset; None if no segment loads it."""
        for segment in self.segments:  # those with code come first
            # The kernel maps whole pages, so a mapping may begin a little before its segment does.
            if segment.offset & ~0xFFF <= offset < segment.offset + segment.size:
                return segment.vaddr + offset - segment.offset
        return None


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
    return ElfIdentity(identity, tuple(segments), loads[0].vaddr if loads else 0)


def file_hash(descriptor: int) -> str:
    """Returns "htlhash:<hex>" of an open file: a hash of its head, tail and length. Raises OSError.

    It is OpenTelemetry's process.executable.build_id.htlhash (opentelemetry.io/docs/specs/otel/profiles/mappings).
    """
    size = os.fstat(descriptor).st_size
    head, tail = os.pread(descriptor, _PAGE, 0), os.pread(descriptor, _PAGE, max(0, size - _PAGE))
    return f"htlhash:{hashlib.sha256(head + tail + struct.pack('>Q', size)).digest()[:16].hex()}"


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
