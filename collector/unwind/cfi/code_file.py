"""A program or library for x86-64 or aarch64, as call frame information needs it: its code, and sections by name."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collector.elf import compressed, dynamic
from collector.elf.error import ElfError, reading
from collector.elf.file import ElfFile
from collector.elf.headers import DYN, EXEC, Segment, read_header, read_segments
from collector.elf.reader import MAX_OFFSET, Read, bytes_reader, file_reader
from collector.elf.sections import COMPRESSED, Section
from collector.unwind.cfi.machine import MACHINES, Machine

MAX_SECTION_BYTES = 64 << 20
MAX_CODE_SPAN = 1 << 32
"""From the first executable address to the last one."""
CHUNK_BYTES = 1 << 16
"""Tables have rows by chunks of code (table.py)."""

_MAX_NAME = 64


@dataclass(frozen=True)
class CodeFile(ElfFile):
    """`code`: int64 (k, 2), the executable addresses, ascending and apart; `max_section_bytes` limits each section that
    is read."""

    code: np.ndarray
    max_section_bytes: int

    @property
    def machine(self) -> Machine:
        return MACHINES[self.header.machine]

    @property
    def base(self) -> int:
        """The address that positions in its table count from: where the chunk of its first code begins."""
        return int(self.code[0, 0]) & -CHUNK_BYTES

    @cached_property
    def by_name(self) -> dict[str, Section]:
        """The first section of each name whose bytes are in the file, empty ones as well."""
        sections: dict[str, Section] = {}
        for section in self.sections:
            fits = max(section.address, section.offset) + section.size < MAX_OFFSET
            if fits and 0 < len(section.name) <= _MAX_NAME and (not section.empty or not section.size):
                sections.setdefault(section.name, section)
        return sections

    @cached_property
    def needs_libraries(self) -> bool:
        with reading():
            return any(tag == dynamic.NEEDED for tag, _ in dynamic.entries(self))

    def section_bytes(self, name: str) -> bytes | None:
        """Returns the unpacked bytes of a section; None if there is none. Raises ElfTooLarge, and ElfError if the
        section is cut off or its compression is damaged."""
        section = self.by_name.get(name)
        if section is None or not section.size:
            return None
        compressed.check_size(name, section.size, self.max_section_bytes)
        with reading():
            data = self.read(section.offset, section.size)
        if len(data) < section.size:
            raise ElfError(f"the file ends before its section {name}")
        return compressed.unpack(name, data, self.max_section_bytes) if section.flags & COMPRESSED else data


def from_descriptor(descriptor: int, max_section_bytes: int = MAX_SECTION_BYTES) -> CodeFile:
    """Reads an open file. Raises ElfError."""
    return parse(file_reader(descriptor), max_section_bytes)


def from_bytes(data: bytes) -> CodeFile:
    """Reads a file that is in memory. Raises ElfError."""
    return parse(bytes_reader(data))


def parse(read: Read, max_section_bytes: int = MAX_SECTION_BYTES) -> CodeFile:
    """Reads what `read` gives. Raises ElfError."""
    with reading():
        header = read_header(read)
        if not header.is_64:
            raise ElfError("expected a 64-bit ELF file")
        if header.machine not in MACHINES or header.kind not in (EXEC, DYN):
            raise ElfError(
                f"expected a program or library for x86-64 or aarch64, got machine {header.machine}, type {header.kind}"
            )
        segments = read_segments(read, header)
        code = _code(ElfFile(read, header, segments).loads)
        return CodeFile(read, header, segments, code, max_section_bytes)


def _code(loads: tuple[Segment, ...]) -> np.ndarray:
    spans: list[list[int]] = []
    for load in sorted((load for load in loads if load.executable), key=lambda load: load.vaddr):
        end = load.vaddr + load.size
        if spans and load.vaddr <= spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], end)
        else:
            spans.append([load.vaddr, end])
    if not spans:
        raise ElfError("the file has no executable segment")
    if spans[-1][1] - spans[0][0] > MAX_CODE_SPAN:
        raise ElfError(f"the code spans more than {MAX_CODE_SPAN} bytes")
    return np.array(spans, np.int64)
