"""All that an ELF file says, or that is known, about unwinding its code: the better source over the worse one."""

from collector import cfi, cfi_fallback, cfi_file, cfi_records
from collector.cfi_file import File
from collector.cfi_records import Section
from collector.cfi_steps import NOTHING, Steps, overlay


def steps(file: File) -> Steps:
    """Rules over the code of a file: .eh_frame, then .debug_frame, then what needs neither."""
    found = overlay(cfi_fallback.signal_returns(file), overlay(_eh_frame(file), _debug_frame(file)))
    return overlay(found, cfi_fallback.steps(file))


def _eh_frame(file: File) -> Steps:
    header = file.sections.get(".eh_frame")
    data = file.section(".eh_frame")
    if header is None or data is None:
        return NOTHING
    got = file.sections.get(".got.plt") or file.sections.get(".got")
    section = Section(cfi_records.padded(data), header.vaddr, True, got.vaddr if got else None)
    return cfi.steps(section, cfi_records.read(section), file.code)


def _debug_frame(file: File) -> Steps:
    data = file.section(".debug_frame")
    if data is None and (packed := file.section(".zdebug_frame")) is not None:
        data = cfi_file.legacy_compressed(packed)
    if data is None:
        return NOTHING
    section = Section(cfi_records.padded(data), 0, False)
    return cfi.steps(section, cfi_records.read(section), file.code)
