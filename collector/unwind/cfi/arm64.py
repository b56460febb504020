"""Rules for code of aarch64 that compilers give none: signal trampolines, procedure linkage tables, entry points.

Instructions: Arm Architecture Reference Manual, C6. Tables of linkers: binutils' elfnn-aarch64.c.
"""

from itertools import islice

import numpy as np

from collector.unwind.cfi import fallback
from collector.unwind.cfi.code_file import CodeFile
from collector.unwind.cfi.steps import CFA_END, IN_LINK_REGISTER, NOTHING, UnwindSteps, intervals, pack

_SIGRETURN = (bytes.fromhex("681180d2010000d4"),)
"""mov x8, #139; svc #0"""
_FIRST_ENTRY_BYTES = 32  # of a linkage table: it saves the link register
_CALL, _CALL_MASK = 0x94000000, 0xFC000000  # bl
_ENTRY_INSTRUCTIONS = 32


def signal_returns(file: CodeFile) -> UnwindSteps:
    """The code that signal handlers return to."""
    return fallback.signal_returns(file, _SIGRETURN)


def linkage_tables(file: CodeFile) -> UnwindSteps:
    """The .plt sections: their entries use neither the stack nor the link register."""
    named = (section for name, section in file.by_name.items() if name.startswith((".plt", ".iplt")))
    tables = sorted((s.address, s.size) for s in islice(named, fallback.MAX_LINKAGE_TABLES) if s.address)
    start = np.array([address + _FIRST_ENTRY_BYTES for address, _ in tables], np.int64)
    end = np.array([address + size for address, size in tables], np.int64)
    apart = end <= np.append(start[1:], np.iinfo(np.int64).max)
    rule = np.full(int(apart.sum()), pack(IN_LINK_REGISTER), np.uint64)
    return intervals(start[apart], end[apart], rule)


def entry(file: CodeFile) -> UnwindSteps:
    """The first instructions of a program, up to its first call: they have no caller."""
    start = file.header.entry
    code = np.frombuffer(file.at(start, 4 * _ENTRY_INSTRUCTIONS)[: 4 * _ENTRY_INSTRUCTIONS], np.uint8)
    instructions = code[: len(code) // 4 * 4].view("<u4")
    calls = np.flatnonzero(instructions & _CALL_MASK == _CALL)
    if not start or not len(calls):
        return NOTHING
    end = start + 4 * (int(calls[0]) + 1)
    return intervals(np.array([start]), np.array([end]), np.array([pack(CFA_END)], np.uint64))
