"""The rules for a file's code: what its call frame information says, and what is known about other code."""

from collector.elf import compressed, eh_frame_hdr
from collector.elf.eh_frame_hdr import ENTRY_BYTES, HEADER_BYTES
from collector.elf.error import reading
from collector.unwind import cfi, cfi_fallback, cfi_go, cfi_records
from collector.unwind.cfi_records import FrameSection
from collector.unwind.cfi_steps import NOTHING, Steps
from collector.unwind.code_file import CodeFile

MAX_TABLE_ENTRIES = 1 << 22


def layers(file: CodeFile) -> list[Steps]:
    """Returns rules over the code of a file, the better source before the worse one; [] if it has no call frame
    information. Raises ElfError."""
    go = cfi_go.is_go(file)
    rules = [_eh_frame(file), _debug_frame(file)]
    if go:
        rules = [cfi_go.outermost(file), *rules, cfi_go.frame_pointers(file)]
    if not any(len(layer.address) for layer in rules):
        return []
    if go or not file.needs_libraries:  # others return from signals through their C library
        rules.insert(0, cfi_fallback.signal_returns(file))
    rules += [cfi_fallback.linkage_tables(file), cfi_fallback.entry(file)]
    return [layer for layer in rules if len(layer.address)]


def _eh_frame(file: CodeFile) -> Steps:
    header = file.by_name.get(".eh_frame")
    if header is None:
        return _eh_frame_by_table(file)
    got = file.by_name.get(".got.plt") or file.by_name.get(".got")
    data = cfi_records.padded(file.section_bytes(".eh_frame") or b"")
    section = FrameSection(data, header.address, True, got.address if got else None)
    return cfi.steps(section, cfi_records.read(section), file.code)


def _eh_frame_by_table(file: CodeFile) -> Steps:
    """The functions that .eh_frame_hdr lists, for a file without section headers."""
    vaddr = file.eh_frame_hdr
    if vaddr is None:
        return NOTHING
    with reading():
        count = min(eh_frame_hdr.entry_count(file.at(vaddr, HEADER_BYTES)), MAX_TABLE_ENTRIES)
        table = eh_frame_hdr.read_table(file.at(vaddr, HEADER_BYTES + ENTRY_BYTES * count), vaddr)
        if table is None:
            return NOTHING
        data = cfi_records.padded(file.at(table.eh_frame, file.max_section_bytes))
    section = FrameSection(data, table.eh_frame, True)
    return cfi.steps(section, cfi_records.read_at(section, table.fde - table.eh_frame), file.code)


def _debug_frame(file: CodeFile) -> Steps:
    data = file.section_bytes(".debug_frame")
    if data is None and (packed := file.section_bytes(".zdebug_frame")) is not None:
        data = compressed.unpack_gnu(".zdebug_frame", packed, file.max_section_bytes)
    section = FrameSection(cfi_records.padded(data or b""), 0, False)
    return cfi.steps(section, cfi_records.read(section), file.code)
