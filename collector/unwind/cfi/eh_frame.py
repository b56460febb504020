"""The section .eh_frame of a file, and the functions that the search table of .eh_frame_hdr lists."""

import numpy as np

from collector.elf import eh_frame_hdr
from collector.elf.eh_frame_hdr import ENTRY_BYTES, HEADER_BYTES, SearchTable
from collector.elf.error import reading
from collector.elf.headers import GNU_EH_FRAME
from collector.unwind.cfi import records
from collector.unwind.cfi.code_file import CodeFile
from collector.unwind.cfi.records import Fdes, FrameSection

MAX_TABLE_ENTRIES = 1 << 22


def by_name(file: CodeFile) -> FrameSection | None:
    """Returns the section; None if there is none, or no section headers. Raises ElfError."""
    header = file.by_name.get(".eh_frame")
    if header is None:
        return None
    got = file.by_name.get(".got.plt") or file.by_name.get(".got")
    data = records.padded(file.section_bytes(".eh_frame") or b"")
    return FrameSection(data, header.address, True, got.address if got else None, file.machine)


def by_table(file: CodeFile, table: SearchTable) -> FrameSection:
    """Returns the section of a file without section headers; what follows it may be part of it. Raises ElfError."""
    with reading():
        return FrameSection(
            records.padded(file.at(table.eh_frame, file.max_section_bytes)), table.eh_frame, True, machine=file.machine
        )


def search_table(file: CodeFile) -> SearchTable | None:
    """Returns the whole table; None if there is none, or one that the runtime libraries could not search: it is cut
    off, does not ascend, or has other encodings than those that all linkers write. Raises ElfError."""
    segment = next((segment for segment in file.segments if segment.kind == GNU_EH_FRAME), None)
    if segment is None:
        return None
    with reading():
        count = eh_frame_hdr.entry_count(file.at(segment.vaddr, HEADER_BYTES))
        size = HEADER_BYTES + ENTRY_BYTES * count
        if count > MAX_TABLE_ENTRIES or size > segment.size:
            return None
        table = eh_frame_hdr.read_table(file.at(segment.vaddr, size), segment.vaddr)
    if table is None or len(table.function) < count or np.any(table.function[1:] < table.function[:-1]):
        return None
    return table


def listed(section: FrameSection, table: SearchTable) -> Fdes:
    """Returns the functions of the section that a table lists: those whose records are valid. Raises ElfError."""
    return records.read_at(section, table.fde - section.vaddr)
