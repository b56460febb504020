"""Rules over addresses as a step function: each holds from its address up to the next one.

A rule is 8 bytes as in unwind_table.RULE, here one little-endian uint64: cfa_kind | rbp_kind << 8 | rbp_offset << 16 |
cfa_offset << 32.
"""

from dataclasses import dataclass

import numpy as np

NONE = 0
UNCOVERED = (1 << 64) - 1
"""Nobody says anything about this address; no rule looks like this."""

# Kinds of the canonical frame address (CFA), and where the caller's rbp lies: as bpf/unwind.h has them.
CFA_NONE, CFA_RSP, CFA_RBP, CFA_RBP_DEREF, CFA_RSP_DEREF, CFA_PLT, CFA_SIGNAL, CFA_END, CFA_FRAME_POINTER = range(9)
CFA_REGISTER = 16
RBP_SAME, RBP_AT_CFA, RBP_AT_RBP, RBP_UNDEFINED = range(4)


@dataclass(frozen=True)
class Steps:
    """Addresses strictly ascending; what lies before the first one is UNCOVERED."""

    address: np.ndarray  # int64 (n,)
    rule: np.ndarray  # uint64 (n,)


NOTHING = Steps(np.zeros(0, np.int64), np.zeros(0, np.uint64))


def pack(cfa_kind: int, cfa_offset: int = 0, rbp_kind: int = RBP_SAME, rbp_offset: int = 0) -> int:
    """A rule as one number."""
    return cfa_kind | rbp_kind << 8 | (rbp_offset & 0xFFFF) << 16 | (cfa_offset & 0xFFFFFFFF) << 32


def intervals(start: np.ndarray, end: np.ndarray, rule: np.ndarray) -> Steps:
    """Steps of intervals (int64) that are ascending and do not overlap, one rule (uint64) each; empty ones say
    nothing."""
    nonempty = start < end
    address = np.stack([start[nonempty], end[nonempty]], axis=1).ravel()
    rules = np.stack([rule[nonempty], np.full(int(nonempty.sum()), UNCOVERED, np.uint64)], axis=1).ravel()
    last = np.append(address[1:] != address[:-1], True)[: len(address)]  # where one begins at another's end, it counts
    return merged(address[last], rules[last])


def merged(address: np.ndarray, rule: np.ndarray) -> Steps:
    """Without the steps that change nothing."""
    if not len(address):
        return NOTHING
    keep = np.empty(len(address), bool)
    keep[0] = rule[0] != np.uint64(UNCOVERED)
    np.not_equal(rule[1:], rule[:-1], out=keep[1:])
    return Steps(address[keep], rule[keep])


def overlay(upper: Steps, lower: Steps) -> Steps:
    """`upper`, and where it is UNCOVERED, `lower`."""
    if not len(upper.address) or not len(lower.address):
        return upper if len(upper.address) else lower
    address = union(upper.address, lower.address)
    rule = at(upper, address)
    open_ = rule == np.uint64(UNCOVERED)
    rule[open_] = at(lower, address[open_])
    return merged(address, rule)


def part(steps: Steps, start: int, end: int) -> Steps:
    """The steps from `start` up to `end`; the first one is at `start`."""
    low, high = np.searchsorted(steps.address, [start, end], side="left")
    first = at(steps, np.array([start]))
    if low < high and steps.address[low] == start:
        low += 1
    return Steps(np.append(start, steps.address[low:high]), np.append(first, steps.rule[low:high]))


def union(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Two ascending arrays as one, every value once."""
    both: np.ndarray = np.concatenate([first, second])
    both.sort(kind="stable")  # merges what is sorted already
    result: np.ndarray = both[np.append(True, both[1:] != both[:-1])[: len(both)]]
    return result


def at(steps: Steps, address: np.ndarray) -> np.ndarray:
    """The rules (uint64) at addresses (int64)."""
    row = np.searchsorted(steps.address, address, side="right") - 1
    if not len(steps.address):
        return np.full(len(address), UNCOVERED, np.uint64)
    return np.where(row >= 0, steps.rule[row], np.uint64(UNCOVERED))
