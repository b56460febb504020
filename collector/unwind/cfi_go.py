"""Go programs: they keep frame pointers, and their call frame information does not say where a stack ends.

Format: Go's runtime/symtab.go (pcHeader, functab, _func), since Go 1.20.
"""

import struct

import numpy as np

from collector.unwind.cfi_error import CfiError
from collector.unwind.cfi_file import File
from collector.unwind.cfi_steps import CFA_END, CFA_FRAME_POINTER, NOTHING, RBP_AT_CFA, Steps, intervals, pack

MAX_FUNCTIONS = 1 << 20
_MARKS = (".gopclntab", ".data.rel.ro.gopclntab", ".note.go.buildid", ".go.buildinfo")
_HEADER = struct.Struct("<I2xBBQQQQQQQQ")  # magic, instruction size, pointer size, functions, files, text start, then
# where names, compilation units, files, program counters and functions are
_MAGIC = 0xFFFFFFF1
_TOP_FRAME = 1
_FLAG_AT = 41  # in _func
_FUNCTION_BYTES = 44
_OUTERMOST = (
    b"runtime.goexit\0",
    b"runtime.mstart\0",
    b"runtime.rt0_go\0",
)  # but not sigtramp: below it the stack goes on
_SWITCHES = b"\0runtime.mcall\0", b"\0runtime.systemstack\0"  # to the stack of the scheduler, which begins there
_MODULE_TEXT_AT = 176  # runtime.moduledata.text


def is_go(file: File) -> bool:
    """Whether the Go linker made it."""
    return any(name in file.sections for name in _MARKS)


def frame_pointers(file: File) -> Steps:
    """The rule for all its code that nothing else is said about."""
    text = file.sections.get(".text")
    start, end = (text.vaddr, text.vaddr + text.size) if text else (int(file.code[0, 0]), int(file.code[0, 1]))
    rule = pack(CFA_FRAME_POINTER, 16, RBP_AT_CFA, -16)
    return intervals(np.array([start]), np.array([end]), np.array([rule], np.uint64))


def outermost(file: File) -> Steps:
    """The functions that goroutines, threads and stacks begin with."""
    try:
        data = file.section(".gopclntab") or file.section(".data.rel.ro.gopclntab") or b""
        return _outermost(file, data) if len(data) >= _HEADER.size else NOTHING
    except (struct.error, ValueError, CfiError):
        return NOTHING


def _outermost(file: File, data: bytes) -> Steps:
    magic, _, _, count, _, text_start, names, _, _, _, functions = _HEADER.unpack_from(data)
    if magic != _MAGIC or count > MAX_FUNCTIONS or functions + 8 * count + 4 > len(data):
        return NOTHING
    table = np.frombuffer(data, "<u4", 2 * count + 1, functions)
    entry, at = table[::2].astype(np.int64), functions + table[1::2].astype(np.int64)
    fits = at + _FUNCTION_BYTES <= len(data)
    flags = np.frombuffer(data, np.uint8)[np.where(fits, at + _FLAG_AT, 0)]
    found: dict[bytes, tuple[int, int]] = {}
    for row in np.flatnonzero(fits & (flags & _TOP_FRAME != 0))[:100].tolist():
        (name,) = struct.unpack_from("<i", data, int(at[row]) + 4)
        mark = next((mark for mark in _OUTERMOST if name >= 0 and data.startswith(mark, names + name)), None)
        if mark is not None:
            found[mark] = int(entry[row]), int(entry[row + 1])
    named = np.frombuffer(data, np.uint8)[np.where(fits, at, 0)[:, None] + np.arange(4, 8)].view("<i4")[:, 0]
    for mark in _SWITCHES:
        place = data.find(mark, names) + 1 - names
        for row in np.flatnonzero(fits & (named == place))[:1].tolist():
            found[mark] = int(entry[row]), int(entry[row + 1])
    text = _text(file, text_start, found.get(_OUTERMOST[0]))
    if text is None:
        return NOTHING
    spans = text + np.array(sorted(span for span in found.values() if span[0] < span[1]), np.int64).reshape(-1, 2)
    return intervals(spans[:, 0], spans[:, 1], np.full(len(spans), pack(CFA_END), np.uint64))


def _text(file: File, start: int, goexit: tuple[int, int] | None) -> int | None:
    """The address that functions count from: newer linkers write 0, so it is found by what runtime.goexit looks like:
    nop, call, nop."""
    if goexit is None:
        return None
    candidates = [start]
    if ".text" in file.sections:
        candidates.append(file.sections[".text"].vaddr)
    if ".go.module" in file.sections:
        word = file.at(file.sections[".go.module"].vaddr + _MODULE_TEXT_AT, 8)
        candidates.append(int.from_bytes(word, "little"))
    for text in candidates:
        code = file.at(text + goexit[0], 7) if text < 1 << 62 else b""
        if len(code) == 7 and (code[0], code[1], code[6]) == (0x90, 0xE8, 0x90):
            return text
    return None
