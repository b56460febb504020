"""An ELF file whose headers were read, and what lies at its addresses."""

from dataclasses import dataclass
from functools import cached_property

from collector.elf.error import reading
from collector.elf.headers import LOAD, ElfHeader, Segment, read_header, read_segments
from collector.elf.reader import MAX_OFFSET, Read
from collector.elf.sections import Section, sections_of


@dataclass(frozen=True)
class ElfFile:
    """`segments` are all program headers in the order of the table."""

    read: Read
    header: ElfHeader
    segments: tuple[Segment, ...]

    @cached_property
    def loads(self) -> tuple[Segment, ...]:
        """The segments that the file fills and that the kernel maps, without those at addresses that cannot be."""
        return tuple(
            segment
            for segment in self.segments
            if segment.kind == LOAD
            and segment.size
            and segment.offset < MAX_OFFSET
            and segment.vaddr + segment.size < MAX_OFFSET
        )

    @cached_property
    def sections(self) -> list[Section]:
        """All sections in the order of the table. Raises OSError."""
        return sections_of(self.read, self.header)

    def at(self, vaddr: int, size: int) -> bytes:
        """Returns at most `size` bytes from an ELF virtual address on, up to the end of the segment there; b"" if the
        file has none. Raises OSError."""
        for load in self.loads:
            if load.vaddr <= vaddr < load.vaddr + load.size:
                offset = vaddr - load.vaddr
                return self.read(load.offset + offset, min(size, load.size - offset))
        return b""


def parse(read: Read) -> ElfFile:
    """Raises ElfError."""
    with reading():
        header = read_header(read)
        return ElfFile(read, header, read_segments(read, header))
