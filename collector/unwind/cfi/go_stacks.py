"""Rules for the functions of the Go runtime that change stacks: a goroutine has one, and the scheduler of each thread
has one, on which C is called as well.

What such a function does is read in its code, as Go's assembler writes it. It also says where the runtime.g of a thread
is, and in its runtime.m the goroutine. Functions: Go's src/runtime/asm_amd64.s.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from collector.unwind.cfi.steps import (
    CFA_ASMCGOCALL,
    CFA_END,
    CFA_MORESTACK,
    CFA_OTHER_STACK,
    CFA_SYSTEMSTACK,
    CFA_UNKNOWN,
    LOST,
    UnwindSteps,
    intervals,
    pack,
    part,
)

GOEXIT = "runtime.goexit"

_OUTERMOST = GOEXIT, "runtime.mstart", "runtime.rt0_go"
_LEAVES = "runtime.mcall", "runtime.gogo", "gogo"
"""Where they have written to rsp, a stack begins: nothing returns to what called them."""
_SYSTEMSTACK, _MORESTACK, _ASMCGOCALL = "runtime.systemstack", "runtime.morestack", "runtime.asmcgocall"

# Instructions: Intel's manual, volume 2.
_WRITE = (
    rb"(?P<write>[\x48\x49]\x8b(?:[\x20-\x23\x26\x27]|\x24\x24|[\x60-\x63\x65-\x67].|\x64\x24.)"  # mov of memory to rsp
    rb"|[\x48\x4c]\x89[\xc4\xcc\xd4\xdc\xe4\xec\xf4\xfc]"  # mov of a register to rsp
    rb"|\x48\x83\xe4.)"  # and with rsp
)
_WRITES = re.compile(_WRITE, re.DOTALL)
_STORES = re.compile(rb"\x48\x89(?:[\x3c\x14]\x24|[\x7c\x54]\x24(?P<slot>.))|" + _WRITE, re.DOTALL)  # mov of rdi or rdx
_SETS_FRAME = re.compile(rb"\x48\x89\xe5|\x48\x8d\x6c\x24.|\x48\x8d\xac\x24....", re.DOTALL)  # mov or lea, to rbp
_LOADS_G = re.compile(
    rb"\x64\x48\x8b[\x04\x0c\x14\x1c\x24\x2c\x34\x3c]\x25(?P<static>....)"  # mov %fs:OFFSET, as in most programs
    rb"|\x48\xc7[\xc0-\xc7](?P<moved>....)\x64\x48\x8b"  # mov $OFFSET; mov %fs:(...), as in position-independent ones
    rb"|\x48\x8b[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](?P<loaded>....)\x64\x48\x8b",  # mov of it; mov %fs:(...): libraries
    re.DOTALL,
)
_COMPARES_CURG = re.compile(rb"\x48\x3b\x83(....)", re.DOTALL)  # cmp OFFSET(%rbx), %rax
_PROLOGUE_BYTES = 32

_SAVED = np.uint64(0xFFFFFF00)  # of a rule: where the caller's registers lie
_BARE = sum(LOST << 8 + 4 * i for i in range(1, 6))
_FRAMED = _BARE | 1 << 8


@dataclass(frozen=True)
class GoCode:
    """A function, and its code, or the begin of it."""

    name: str
    start: int
    end: int
    writes_rsp: bool
    code: bytes

    @property
    def frame_at(self) -> int | None:
        """Where its frame pointer is set, from its start; None: it has none."""
        found = _SETS_FRAME.search(self.code, 0, _PROLOGUE_BYTES)
        return found.end() if found else None

    @property
    def writes(self) -> list[int]:
        """Where it has just written to rsp, from its start."""
        return [found.end() for found in _WRITES.finditer(self.code)]


Span = tuple[int, int, int]
"""(start, end, rule)"""


def layers(functions: Sequence[GoCode], by_rsp: UnwindSteps, base: int) -> list[UnwindSteps]:
    """Returns rules for functions that no other calls and those that write to rsp, the better source before the worse
    one. `by_rsp`: rules for all of Go's code that change with rsp; `base`: where positions in the file count from."""
    writers = [function for function in functions if function.writes_rsp]
    return [_steps(_special(functions, base)), _steps(span for each in writers for span in _other(each, by_rsp))]


def rule(cfa_kind: int, cfa_offset: int, framed: bool) -> int:
    """Returns the rule of a function of Go. None keeps a register for its caller but rbp, which those with a frame save
    below the return address."""
    return pack(cfa_kind, cfa_offset) | (_FRAMED if framed else _BARE)


def _steps(spans: Iterator[Span]) -> UnwindSteps:
    start, end, rules = np.array(sorted(spans), np.uint64).reshape(-1, 3).T
    return intervals(start.astype(np.int64), end.astype(np.int64), rules)


def _other(function: GoCode, by_rsp: UnwindSteps) -> Iterator[Span]:
    """While a function has a frame, rbp leads to it, whatever stack rsp is on. Without a frame, nothing is known once
    it has written to rsp."""
    if function.frame_at is None:
        yield function.start + min(function.writes, default=0), function.end, pack(CFA_UNKNOWN)
        return
    inside = part(by_rsp, function.start + function.frame_at, function.end)
    by_rbp = np.uint64(rule(CFA_OTHER_STACK, 16, framed=True))
    rules = np.where(inside.rule & _SAVED == by_rbp & _SAVED, by_rbp, inside.rule)
    yield from zip(inside.address.tolist(), [*inside.address[1:].tolist(), function.end], rules.tolist(), strict=True)


def _special(functions: Sequence[GoCode], base: int) -> Iterator[Span]:
    goroutine = next((_goroutine(each, base) for each in functions if each.name == _SYSTEMSTACK), None)
    for each in functions:
        writes = each.writes if each.writes_rsp else []
        if each.name in _OUTERMOST:
            yield each.start, each.end, pack(CFA_END)
        elif writes and each.name in _LEAVES:
            yield each.start + writes[0], each.end, pack(CFA_END)
        elif writes and each.name == _ASMCGOCALL:
            yield from _calls_of_c(each)
        elif writes and goroutine is not None and each.name == _SYSTEMSTACK:
            yield each.start + writes[0], each.start + writes[-1], _in_goroutine(CFA_SYSTEMSTACK, each, *goroutine)
        elif writes and goroutine is not None and each.name == _MORESTACK:
            yield each.start + writes[0], each.end, _in_goroutine(CFA_MORESTACK, each, *goroutine)


def _calls_of_c(asmcgocall: GoCode) -> Iterator[Span]:
    """Where two words of the stack say how far rsp was below the end of a goroutine's stack, and of which; or what rsp
    was, and 0."""
    begin, slot, framed = 0, 0, asmcgocall.frame_at is not None
    for found in _STORES.finditer(asmcgocall.code):
        if found["write"] is None:
            begin, slot = found.end(), (found["slot"] or b"\0")[0]
        elif begin:
            yield asmcgocall.start + begin, asmcgocall.start + found.end(), rule(CFA_ASMCGOCALL, slot, framed)
            begin = 0


def _goroutine(systemstack: GoCode, base: int) -> tuple[int, int] | None:
    """Where the address of the thread's runtime.g is: how far from the thread pointer, which is negative, or the
    position in the file of the word that says it. And the offset in runtime.m of the goroutine that it runs."""
    loads, compares = _LOADS_G.search(systemstack.code), _COMPARES_CURG.search(systemstack.code)
    if loads is None or compares is None:
        return None
    place = int.from_bytes(loads["static"] or loads["moved"] or loads["loaded"], "little", signed=True)
    if loads["loaded"]:
        place += systemstack.start + loads.end("loaded") - base
    offset = int.from_bytes(compares[1], "little")
    known = (place >= 0) == bool(loads["loaded"]) and place < 1 << 31 and 0 < offset < 1 << 12
    return (place, offset) if known else None


def _in_goroutine(cfa_kind: int, function: GoCode, place: int, offset: int) -> int:
    """Has the offset where other rules say where registers lie."""
    return pack(cfa_kind, place) | (function.frame_at is not None) << 8 | offset << 16
