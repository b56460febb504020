"""The rules for a file's code: what its call frame information says, and what is known about other code."""

from collector.elf import compressed
from collector.unwind.cfi import arm64, eh_frame, fallback, greenlet, records
from collector.unwind.cfi import go as cfi_go
from collector.unwind.cfi import section as cfi
from collector.unwind.cfi.code_file import CodeFile
from collector.unwind.cfi.machine import ARM64
from collector.unwind.cfi.records import FrameSection
from collector.unwind.cfi.steps import NOTHING, UnwindSteps


def layers(file: CodeFile) -> list[UnwindSteps]:
    """Returns rules over the code of a file, the better source before the worse one; [] if it has no call frame
    information. Raises ElfError."""
    rules = [_eh_frame(file), _debug_frame(file)]
    if file.machine is ARM64:
        known = any(len(layer.address) for layer in rules)
        rules = [arm64.signal_returns(file), *rules, arm64.linkage_tables(file), arm64.entry(file)] if known else []
        return [layer for layer in rules if len(layer.address)]
    go = cfi_go.is_go(file)
    if go:
        rules = [*cfi_go.layers(file), *rules, cfi_go.frame_pointers(file)]
    if not any(len(layer.address) for layer in rules):
        return []
    if go or not file.needs_libraries or file.header.entry:  # others return from signals through their C library
        rules.insert(0, fallback.signal_returns(file))
    rules.insert(0, greenlet.layer(file))
    rules += [fallback.linkage_tables(file), fallback.entry(file)]
    return [layer for layer in rules if len(layer.address)]


def _eh_frame(file: CodeFile) -> UnwindSteps:
    section = eh_frame.by_name(file)
    if section is not None:
        return cfi.steps(section, records.read(section), file.code)
    table = eh_frame.search_table(file)
    if table is None:
        return NOTHING
    section = eh_frame.by_table(file, table)
    return cfi.steps(section, eh_frame.listed(section, table), file.code)


def _debug_frame(file: CodeFile) -> UnwindSteps:
    data = file.section_bytes(".debug_frame")
    if data is None and (packed := file.section_bytes(".zdebug_frame")) is not None:
        data = compressed.unpack_gnu(".zdebug_frame", packed, file.max_section_bytes)
    section = FrameSection(records.padded(data or b""), 0, False, machine=file.machine)
    return cfi.steps(section, records.read(section), file.code)
