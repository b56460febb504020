"""All that an ELF file says about unwinding its code, and what is known of code that nothing is said about."""

import struct

import numpy as np

from collector.unwind import cfi, cfi_fallback, cfi_file, cfi_go, cfi_records
from collector.unwind.cfi_file import File
from collector.unwind.cfi_records import Section
from collector.unwind.cfi_steps import NOTHING, Steps

MAX_TABLE_ENTRIES = 1 << 22
_TABLE_ENCODINGS = 0x1B, 0x03, 0x3B  # of .eh_frame_hdr as all linkers write it: pcrel, count, pairs relative to itself


def layers(file: File) -> list[Steps]:
    """Rules over the code of a file, the better source before the worse one; [] where it has none. Raises CfiError."""
    go = cfi_go.is_go(file)
    found = [_eh_frame(file), _debug_frame(file)]
    if go:
        found = [cfi_go.outermost(file), *found, cfi_go.frame_pointers(file)]
    if not any(len(layer.address) for layer in found):
        return []
    if go or not file.needs_libraries:  # others return from signals through their C library
        found.insert(0, cfi_fallback.signal_returns(file))
    found += [cfi_fallback.linkage_tables(file), cfi_fallback.entry(file)]
    return [layer for layer in found if len(layer.address)]


def _eh_frame(file: File) -> Steps:
    header = file.sections.get(".eh_frame")
    if header is None:
        return _eh_frame_by_table(file)
    got = file.sections.get(".got.plt") or file.sections.get(".got")
    data = cfi_records.padded(file.section(".eh_frame") or b"")
    section = Section(data, header.vaddr, True, got.vaddr if got else None)
    return cfi.steps(section, cfi_records.read(section), file.code)


def _eh_frame_by_table(file: File) -> Steps:
    """Where there are no section headers: the functions that .eh_frame_hdr lists."""
    at = file.eh_frame_hdr
    header = file.at(at, 12) if at is not None else b""
    if at is None or len(header) < 12 or header[0] != 1 or tuple(header[1:4]) != _TABLE_ENCODINGS:
        return NOTHING
    frame, count = struct.unpack_from("<iI", header, 4)
    vaddr = at + 4 + frame
    entries = file.at(at + 12, 8 * min(count, MAX_TABLE_ENTRIES))
    table = np.frombuffer(entries, "<i4", len(entries) // 8 * 2)
    section = Section(cfi_records.padded(file.at(vaddr, file.max_section_bytes)), vaddr, True)
    offsets = at + table[1::2].astype(np.int64) - vaddr
    return cfi.steps(section, cfi_records.read_at(section, offsets), file.code)


def _debug_frame(file: File) -> Steps:
    data = file.section(".debug_frame")
    if data is None and (packed := file.section(".zdebug_frame")) is not None:
        data = cfi_file.legacy_compressed(packed, file.max_section_bytes)
    section = Section(cfi_records.padded(data or b""), 0, False)
    return cfi.steps(section, cfi_records.read(section), file.code)
