"""Rules for Go's functions, by the table that the Go runtime keeps for its own stack traces.

For each instruction, the table says how many bytes of the stack its function uses (Go's src/runtime/symtab.go: pcsp).
Functions that use some save rbp just below the return address.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from collector.elf import go_module, gopclntab
from collector.elf.error import ElfError, reading
from collector.elf.go_steps import StepTables
from collector.elf.gopclntab import GO_1_18, GO_1_20, GoTable
from collector.elf.reader import MAX_OFFSET
from collector.elf.sections import Section, content
from collector.unwind.cfi import go_stacks
from collector.unwind.cfi.code_file import CodeFile
from collector.unwind.cfi.go_stacks import GoCode
from collector.unwind.cfi.steps import CFA_FRAME_POINTER, CFA_RSP, UNCOVERED, UnwindSteps, intervals, merged, pack

MAX_STEPS = 8_000_000
"""The most steps of all functions; functions past it have no rules."""

_MARKS = (".gopclntab", ".data.rel.ro.gopclntab", ".note.go.buildid", ".go.buildinfo")
_NAME, _STEPS = 4, 16  # offsets in a function's _func
_LAYOUTS = {GO_1_18: (37, 40), GO_1_20: (41, 44)}  # of _func: the offset of its flags, and its bytes
_TOP_FRAME, _WRITES_RSP = 1, 2
_MAX_SPECIAL, _MAX_SPECIAL_BYTES = 200, 4096
_MAX_FRAME_BYTES = 1 << 24


class _Functions(NamedTuple):
    """int64 (n,), by start; no two overlap."""

    start: np.ndarray  # from the text's start, as `end`
    end: np.ndarray
    name: np.ndarray  # offset in the names
    steps: np.ndarray  # offset of the table of stack bytes; 0: there is none
    flags: np.ndarray


def is_go(file: CodeFile) -> bool:
    """Whether the Go linker made the file."""
    return any(name in file.by_name for name in _MARKS)


def frame_pointers(file: CodeFile) -> UnwindSteps:
    """The rule for all code that has no other: Go's functions keep frame pointers."""
    text = file.by_name.get(".text")
    start, end = (text.address, text.end) if text else (int(file.code[0, 0]), int(file.code[0, 1]))
    return intervals(np.array([start]), np.array([end]), np.array([pack(CFA_FRAME_POINTER)], np.uint64))


def layers(file: CodeFile) -> list[UnwindSteps]:
    """Returns the rules of Go's functions, the better source before the worse one; [] if there is no table of them, or
    one of Go before 1.18."""
    try:
        with reading():
            section = gopclntab.find_table(file.read, file.sections)
            table = gopclntab.read_table(content(file.read, section, file.max_section_bytes))
            return _layers(file, section, table) if section is not None and table is not None else []
    except ElfError:
        return []


def _layers(file: CodeFile, section: Section, table: GoTable) -> list[UnwindSteps]:
    functions = _functions(table)
    text = _text_start(file, section, table, functions)
    if text is None:
        return []
    by_rsp = _by_rsp(table, functions, text)
    special = list(_special(file, table, functions, text))
    return [*go_stacks.layers(special, by_rsp, file.base), by_rsp]


def _functions(table: GoTable) -> _Functions:
    data, (flags_at, record_bytes) = np.frombuffer(table.data, np.uint8), _LAYOUTS[table.magic]
    begun = np.maximum.accumulate(np.append(0, table.end))[:-1]
    good = (table.record + record_bytes <= len(data)) & (table.start >= begun) & (table.start < table.end)
    record = table.record[good]
    name, steps = (data[(record + at)[:, None] + np.arange(4)].view("<u4")[:, 0] for at in (_NAME, _STEPS))
    return _Functions(
        table.start[good], table.end[good], name.astype(np.int64), steps.astype(np.int64), data[record + flags_at]
    )  # fmt: skip


def _special(file: CodeFile, table: GoTable, functions: _Functions, text: int) -> Iterator[GoCode]:
    """The functions that no other calls, and those that write to rsp, by address. Raises OSError."""
    for row in np.flatnonzero(functions.flags & (_TOP_FRAME | _WRITES_RSP))[:_MAX_SPECIAL].tolist():
        start, end = text + int(functions.start[row]), text + int(functions.end[row])
        if end < MAX_OFFSET:
            writes_rsp, size = bool(functions.flags[row] & _WRITES_RSP), min(end - start, _MAX_SPECIAL_BYTES)
            yield GoCode(_name(table, functions, row), start, end, writes_rsp, file.at(start, size))


def _text_start(file: CodeFile, section: Section, table: GoTable, functions: _Functions) -> int | None:
    """The address that functions count from. Newer linkers write 0, and position-independent programs may have it in
    relocations only. So each candidate is checked by the code of runtime.goexit there: nop, call, nop. Raises
    OSError."""
    outermost = np.flatnonzero(functions.flags & _TOP_FRAME)[:_MAX_SPECIAL].tolist()
    goexit = next((row for row in outermost if _name(table, functions, row) == go_stacks.GOEXIT), None)
    if goexit is None:
        return None
    for candidate in _text_candidates(file, section, table):
        at = candidate + int(functions.start[goexit])
        code = file.at(at, 7) if at < MAX_OFFSET else b""
        if len(code) == 7 and (code[0], code[1], code[6]) == (0x90, 0xE8, 0x90):
            return candidate
    return None


def _text_candidates(file: CodeFile, section: Section, table: GoTable) -> Iterator[int]:
    yield table.text_start
    if text := file.by_name.get(".text"):
        yield text.address
    if module := go_module.find_module(file.read, file.sections, table, section.address):
        yield module.text


def _name(table: GoTable, functions: _Functions, row: int) -> str:
    return gopclntab.text(table.data, table.names + int(functions.name[row]))


def _by_rsp(table: GoTable, functions: _Functions, text: int) -> UnwindSteps:
    """The rules of the table of stack bytes."""
    tables = StepTables(table.data[table.steps : max(table.steps, table.functions)])
    lengths = tables.lengths(functions.steps)
    lengths[np.cumsum(lengths) > MAX_STEPS] = 0
    sizes = functions.end - functions.start
    steps = tables.steps(np.arange(len(sizes)), functions.steps, lengths, sizes)
    known = (steps.value >= 0) & (steps.value % 8 == 0) & (steps.value < _MAX_FRAME_BYTES)
    bare, framed = (np.uint64(go_stacks.rule(CFA_RSP, 8, framed)) for framed in (False, True))
    rule = np.where(steps.value < 8, bare, framed) + (steps.value << 32).astype(np.uint64)
    rule = np.where(known, rule, np.uint64(UNCOVERED))
    address = text + np.concatenate([functions.end, functions.start[steps.row] + steps.at])
    rule = np.concatenate([np.full(len(functions.end), UNCOVERED, np.uint64), rule])
    order = np.argsort(address, kind="stable")
    address, rule = address[order], rule[order]
    last = np.append(address[1:] != address[:-1], True)[: len(address)]  # where one ends, the next one may begin
    return merged(address[last], rule[last])
