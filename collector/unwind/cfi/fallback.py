"""Rules for code that compilers give none: signal trampolines, procedure linkage tables, entry points.

Instructions: Intel's manual, volume 2. Tables of linkers: binutils' elf_x86_64_lazy_plt_entry and relatives, lld's.
"""

from itertools import islice

import numpy as np

from collector.unwind.cfi.code_file import CodeFile
from collector.unwind.cfi.steps import (
    CFA_END,
    CFA_PLT,
    CFA_RSP,
    CFA_SIGNAL,
    NOTHING,
    UNCOVERED,
    UnwindSteps,
    intervals,
    merged,
    overlay,
    pack,
)

MAX_SCAN_BYTES = 64 << 20
"""The most code of a file that is scanned."""
MAX_LINKAGE_TABLES = 16
"""Linkers write three."""
_SIGRETURNS = bytes.fromhex("48c7c00f0000000f05"), bytes.fromhex("b80f0000000f05")
"""mov $15, %rax or %eax; syscall: of libraries in C, and of what makes system calls without one."""
_SCAN = 1 << 20
_MAX_TRAMPOLINES = 1000
_ENTRY_BYTES = 64
_CALLS = ((b"\xe8", 5), (b"\xff\x15", 6))  # call, and the length of the instruction
_ENDBR = 0xF3, 0x0F, 0x1E, 0xFA
_PUSH = 0x68


def signal_returns(file: CodeFile, codes: tuple[bytes, ...] = _SIGRETURNS) -> UnwindSteps:
    """The code that signal handlers return to, found by its instructions (`codes`), and the byte before it: return
    addresses are looked up one byte before."""
    ends: dict[int, int] = {}
    left = MAX_SCAN_BYTES
    for load in file.loads:
        if not load.executable:
            continue
        size = min(load.size, left)
        left -= size
        for start in range(0, size, _SCAN):
            data = file.read(load.offset + start, min(_SCAN + len(codes[0]), load.size - start))
            for code in codes:
                offset = data.find(code)
                while offset >= 0 and len(ends) < _MAX_TRAMPOLINES:
                    ends[load.vaddr + start + offset] = load.vaddr + start + offset + len(code)
                    offset = data.find(code, offset + len(code))
    first, end = np.array(sorted(ends.items()), np.int64).reshape(-1, 2).T
    return intervals(first - 1, end, np.full(len(first), pack(CFA_SIGNAL), np.uint64))


def entry(file: CodeFile) -> UnwindSteps:
    """The first instructions of a program, up to its first call: they have no caller."""
    start = file.header.entry
    code = file.at(start, _ENTRY_BYTES)
    ends = [at + size for call, size in _CALLS if 0 <= (at := code.find(call)) <= len(code) - size]
    if not ends:
        return NOTHING
    return intervals(np.array([start]), np.array([start + min(ends)]), np.array([pack(CFA_END)], np.uint64))


def linkage_tables(file: CodeFile) -> UnwindSteps:
    """The .plt sections, entry by entry."""
    rules = NOTHING
    named = (part for part in file.by_name.items() if part[0].startswith((".plt", ".iplt")))
    for name, section in islice(named, MAX_LINKAGE_TABLES):
        if section.address and section.address % 8 == 0:
            rules = overlay(rules, _linkage_table(section.address, file.section_bytes(name) or b""))
    return rules


def _linkage_table(vaddr: int, data: bytes) -> UnwindSteps:
    """Entries of 16 bytes, or two of 8: [endbr64] jmp, with or without a push of the entry's number; the first entry of
    a table pushes one word more and jumps."""
    entries = np.frombuffer(data.ljust(-(-len(data) // 16) * 16, b"\xcc"), np.uint8).reshape(-1, 16)
    marked = (entries[:, :4] == _ENDBR).all(axis=1)
    start = np.where(marked[:, None], entries[:, 4:8], entries[:, :4])
    indirect = (start[:, 0] == 0xFF) & (start[:, 1] == 0x25)
    jumps = indirect | ((start[:, :3] == (0xF2, 0xFF, 0x25)).all(axis=1)) | ((start[:, :2] == (0x41, 0xBB)).all(axis=1))
    pushes = start[:, 0] == _PUSH
    late = indirect & ~marked & (entries[:, 6] == _PUSH)
    if vaddr % 16:  # the rule counts from multiples of 16
        jumps, pushes, late = jumps & ~late, pushes & False, late & False
    first = (start[:, 0] == 0xFF) & (start[:, 1] == 0x35)
    rule = np.full(len(entries), UNCOVERED, np.uint64)
    for rows, value in (
        (jumps, pack(CFA_RSP, 8)), (late, pack(CFA_PLT, 11)), (pushes & marked, pack(CFA_PLT, 9)),
        (pushes & ~marked, pack(CFA_PLT, 5)), (first, pack(CFA_RSP, 16)),
    ):  # fmt: skip
        rule[rows] = value
    address = vaddr + 16 * np.arange(len(entries), dtype=np.int64)
    pushed = address[first] + 6 + 4 * marked[first]
    address = np.concatenate([address, pushed, [vaddr + len(data)]])
    rule = np.concatenate([rule, np.full(len(pushed), pack(CFA_RSP, 24), np.uint64), np.array([UNCOVERED], np.uint64)])
    order = np.argsort(address, kind="stable")
    return merged(address[order], rule[order])
