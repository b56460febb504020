"""Rules for Go programs: they keep frame pointers, and their call frame information does not say where a stack ends."""

import struct

import numpy as np

from collector.elf import gopclntab
from collector.elf.error import ElfError, reading
from collector.elf.gopclntab import GO_1_18, GO_1_20, GoTable
from collector.elf.reader import MAX_OFFSET
from collector.unwind.cfi_steps import CFA_END, CFA_FRAME_POINTER, NOTHING, Steps, intervals, pack
from collector.unwind.code_file import CodeFile

_MARKS = (".gopclntab", ".data.rel.ro.gopclntab", ".note.go.buildid", ".go.buildinfo")
_TOP_FRAME = 1
_NAME_OFFSET = 4  # in a function's _func
_LAYOUTS = {GO_1_18: (37, 40), GO_1_20: (41, 44)}  # of _func: the offset of its flags, and its bytes
_MAX_TOP_FRAMES = 100
_GOEXIT = b"runtime.goexit\0"
_OUTERMOST = _GOEXIT, b"runtime.mstart\0", b"runtime.rt0_go\0"  # but not sigtramp: below it the stack goes on
_SWITCHES = b"\0runtime.mcall\0", b"\0runtime.systemstack\0"  # to the stack of the scheduler, which begins there
_MODULE_TEXT = 176  # offset of runtime.moduledata.text

Span = tuple[int, int]
"""(start, end) of a function, from the text's start."""


def is_go(file: CodeFile) -> bool:
    """Whether the Go linker made the file."""
    return any(name in file.by_name for name in _MARKS)


def frame_pointers(file: CodeFile) -> Steps:
    """The rule for all code that has no other."""
    text = file.by_name.get(".text")
    start, end = (text.address, text.end) if text else (int(file.code[0, 0]), int(file.code[0, 1]))
    return intervals(np.array([start]), np.array([end]), np.array([pack(CFA_FRAME_POINTER)], np.uint64))


def outermost(file: CodeFile) -> Steps:
    """The rules of the functions that goroutines, threads and stacks begin with."""
    section = gopclntab.section(file.by_name.values())
    if section is None:
        return NOTHING
    try:
        table = gopclntab.read_table(file.section_bytes(section.name) or b"")
        with reading():
            return _outermost(file, table) if table is not None else NOTHING
    except ElfError:
        return NOTHING


def _outermost(file: CodeFile, table: GoTable) -> Steps:
    spans = _spans(table)
    text = _text_start(file, table.text_start, spans.get(_GOEXIT))
    if text is None:
        return NOTHING
    bounds = text + np.array(sorted(span for span in spans.values() if span[0] < span[1]), np.int64).reshape(-1, 2)
    return intervals(bounds[:, 0], bounds[:, 1], np.full(len(bounds), pack(CFA_END), np.uint64))


def _spans(table: GoTable) -> dict[bytes, Span]:
    """The functions of _OUTERMOST and _SWITCHES. Raises struct.error."""
    data, record = table.data, table.record
    content = np.frombuffer(data, np.uint8)
    flag_offset, record_bytes = _LAYOUTS[table.magic]
    fits = record + record_bytes <= len(data)
    spans: dict[bytes, Span] = {}
    flags = content[np.where(fits, record + flag_offset, 0)]
    for row in np.flatnonzero(fits & (flags & _TOP_FRAME != 0))[:_MAX_TOP_FRAMES].tolist():
        (name,) = struct.unpack_from("<i", data, int(record[row]) + _NAME_OFFSET)
        mark = next((mark for mark in _OUTERMOST if name >= 0 and data.startswith(mark, table.names + name)), None)
        if mark is not None:
            spans[mark] = int(table.start[row]), int(table.end[row])
    names = content[np.where(fits, record, 0)[:, None] + np.arange(_NAME_OFFSET, _NAME_OFFSET + 4)].view("<i4")[:, 0]
    for mark in _SWITCHES:
        name = data.find(mark, table.names) + 1 - table.names
        for row in np.flatnonzero(fits & (names == name))[:1].tolist():
            spans[mark] = int(table.start[row]), int(table.end[row])
    return spans


def _text_start(file: CodeFile, start: int, goexit: Span | None) -> int | None:
    """The address that functions count from. Newer linkers write 0, so each candidate is checked by the code of
    runtime.goexit there: nop, call, nop. Raises OSError."""
    if goexit is None:
        return None
    candidates = [start]
    if text := file.by_name.get(".text"):
        candidates.append(text.address)
    if module := file.by_name.get(".go.module"):
        candidates.append(int.from_bytes(file.at(module.address + _MODULE_TEXT, 8), "little"))
    for candidate in candidates:
        code = file.at(candidate + goexit[0], 7) if candidate < MAX_OFFSET else b""
        if len(code) == 7 and (code[0], code[1], code[6]) == (0x90, 0xE8, 0x90):
            return candidate
    return None
