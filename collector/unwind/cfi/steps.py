"""Rules over addresses as a step function: each rule holds from its address up to the next one.

A rule is 8 bytes as in collector.unwind.tables.table.RULE, here one little-endian uint64: cfa_kind | SAVED_BY_RBP |
PUSHED | for each of CALLEE_SAVED 4 bits, from bit 8 on | cfa_offset << 32.
"""

from dataclasses import dataclass

import numpy as np

NONE = 0
UNCOVERED = (1 << 64) - 1
"""No source has a rule for this address. No rule has this value."""

# Kinds of the canonical frame address (CFA), and where the caller's registers lie: as bpf/unwind.h has them.
CFA_NONE, CFA_RSP, CFA_RBP, CFA_RBP_DEREF, CFA_RSP_DEREF, CFA_PLT, CFA_SIGNAL, CFA_END, CFA_FRAME_POINTER = range(9)
CFA_OTHER_STACK, CFA_ASMCGOCALL, CFA_SYSTEMSTACK, CFA_MORESTACK = range(10, 14)
CFA_UNKNOWN = 15
"""Nobody knows the caller. Where there is no rule, a frame pointer may lead to it."""
CFA_REGISTER = 16
"""CFA_REGISTER + n: by the register with that DWARF number."""
RETURN_REGISTER = 32
"""RETURN_REGISTER + n: by rsp, and the return address is in the register with that DWARF number."""
SAVED_BY_RBP, PUSHED = 64, 128

CALLEE_SAVED = (6, 3, 12, 13, 14, 15)
"""DWARF numbers: rbp, rbx, r12 to r15. Functions keep them for their callers."""
LOST = 15
"""The 4 bits of a register: 0 says that it was not changed, LOST that nobody knows where it is; n that it lies 8 + 8n
bytes below the CFA or, with SAVED_BY_RBP, below rbp + 16, which is the CFA where only rbp was pushed before. With
PUSHED, it lies there only if that is not below rsp: else it was not pushed yet, or popped already."""


IN_LINK_REGISTER = RETURN_REGISTER + 30
"""On aarch64: by the stack pointer, and the return address is in x30. There, a rule says with 12 bits each, from bit 8
on, how many words below the CFA the frame pointer (x29) and the return address lie; 0: in the register. _RSP and _RBP
mean the stack pointer and the frame pointer."""
MAX_WORDS, LOST_WORDS = 4094, 4095


@dataclass(frozen=True)
class UnwindSteps:
    """The addresses ascend strictly; those before the first one are UNCOVERED."""

    address: np.ndarray  # int64 (n,)
    rule: np.ndarray  # uint64 (n,)


NOTHING = UnwindSteps(np.zeros(0, np.int64), np.zeros(0, np.uint64))


def pack(cfa_kind: int, cfa_offset: int = 0) -> int:
    """Returns a rule as one number. The callee-saved registers are not changed."""
    return cfa_kind | (cfa_offset & 0xFFFFFFFF) << 32


def intervals(start: np.ndarray, end: np.ndarray, rule: np.ndarray) -> UnwindSteps:
    """Returns the steps of intervals (int64) that ascend and do not overlap, with a rule (uint64) each; ignores empty
    intervals."""
    nonempty = start < end
    address = np.stack([start[nonempty], end[nonempty]], axis=1).ravel()
    rules = np.stack([rule[nonempty], np.full(int(nonempty.sum()), UNCOVERED, np.uint64)], axis=1).ravel()
    last = np.append(address[1:] != address[:-1], True)[
        : len(address)
    ]  # of an end and a start at the same address, the start counts
    return merged(address[last], rules[last])


def merged(address: np.ndarray, rule: np.ndarray) -> UnwindSteps:
    """Returns steps without those that change nothing."""
    if not len(address):
        return NOTHING
    keep = np.empty(len(address), bool)
    keep[0] = rule[0] != np.uint64(UNCOVERED)
    np.not_equal(rule[1:], rule[:-1], out=keep[1:])
    return UnwindSteps(address[keep], rule[keep])


def overlay(upper: UnwindSteps, lower: UnwindSteps) -> UnwindSteps:
    """Returns `upper`, and `lower` where `upper` is UNCOVERED."""
    if not len(upper.address) or not len(lower.address):
        return upper if len(upper.address) else lower
    address = union(upper.address, lower.address)
    rule = at(upper, address)
    open_ = rule == np.uint64(UNCOVERED)
    rule[open_] = at(lower, address[open_])
    return merged(address, rule)


def part(steps: UnwindSteps, start: int, end: int) -> UnwindSteps:
    """Returns the steps from `start` up to `end`; the first one is at `start`."""
    low, high = np.searchsorted(steps.address, [start, end], side="left")
    first = at(steps, np.array([start]))
    if low < high and steps.address[low] == start:
        low += 1
    return UnwindSteps(np.append(start, steps.address[low:high]), np.append(first, steps.rule[low:high]))


def union(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns the values of two ascending arrays in order, each once."""
    both: np.ndarray = np.concatenate([first, second])
    both.sort(kind="stable")  # fast, since both halves are sorted
    result: np.ndarray = both[np.append(True, both[1:] != both[:-1])[: len(both)]]
    return result


def at(steps: UnwindSteps, address: np.ndarray) -> np.ndarray:
    """Returns the rules (uint64) at addresses (int64)."""
    row = np.searchsorted(steps.address, address, side="right") - 1
    if not len(steps.address):
        return np.full(len(address), UNCOVERED, np.uint64)
    return np.where(row >= 0, steps.rule[row], np.uint64(UNCOVERED))
