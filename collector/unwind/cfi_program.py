"""Runs the call frame programs of many functions at once, and returns rules.

The state after an instruction is what the last instructions before it set; numpy finds those for millions of
instructions at a time. Only the CFA, rbp and the return address are followed (DWARF 5, section 6.4.2).
"""

from dataclasses import dataclass, fields

import numpy as np

from collector.unwind import cfi_expression
from collector.unwind import cfi_instructions as op
from collector.unwind.cfi_expression import RBP, RIP, RSP
from collector.unwind.cfi_steps import (
    CFA_END,
    CFA_NONE,
    CFA_RBP,
    CFA_REGISTER,
    CFA_RSP,
    CFA_RSP_DEREF,
    CFA_SIGNAL,
    NONE,
    RBP_AT_CFA,
    RBP_AT_RBP,
    RBP_SAME,
    RBP_UNDEFINED,
    pack,
)

_RETURN_AT_CFA, _RETURN_UNDEFINED, _RETURN_ELSEWHERE = range(3)
_SIGNAL_CFA = 160  # offset of the interrupted rsp in the frame of rt_sigreturn
_KIND_OF_REGISTER = np.array([CFA_REGISTER + n for n in range(RIP)] + [CFA_NONE])
_KIND_OF_REGISTER[[RBP, RSP]] = CFA_RBP, CFA_RSP


@dataclass(frozen=True)
class State:
    """What instructions set, or the state after them; each array is int64 (n,)."""

    cfa_kind: np.ndarray
    cfa_offset: np.ndarray
    rbp_kind: np.ndarray
    rbp_offset: np.ndarray
    return_kind: np.ndarray

    def take(self, rows: np.ndarray) -> "State":
        return State(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True)
class Programs:
    """p programs data[begin:end] (uint8), which ascend and do not overlap."""

    data: np.ndarray
    begin: np.ndarray  # int64 (p,)
    end: np.ndarray
    code_align: np.ndarray
    data_align: np.ndarray
    signal: np.ndarray  # bool (p,): the frame is a signal's
    initial: State  # (p,)


def unset(count: int) -> State:
    """Returns the state before the program of a CIE."""
    zero = np.zeros(count, np.int64)
    return State(zero + CFA_NONE, zero, zero + RBP_SAME, zero, zero + _RETURN_ELSEWHERE)


def final(programs: Programs) -> tuple[State, np.ndarray]:
    """Returns the state after the programs, and which of them (bool (p,)) are invalid."""
    run = _run(programs)
    return run.state(run.last), run.bad


def rows(programs: Programs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (program, bytes from the function's start, rule as uint64) wherever the rule changes, ascending. An
    invalid program has one row, NONE."""
    run = _run(programs)
    moves = np.append(run.location[1:] != run.location[:-1], True)
    moves[run.last] = True
    chosen = np.flatnonzero(moves)
    program, location = run.program[chosen], run.location[chosen]
    rule = _rules(run.state(chosen), programs.signal[program])
    rule[run.bad[program]] = NONE
    first = np.append(True, program[1:] != program[:-1])[: len(program)]
    location = np.where(first, 0, location)
    changes = np.append(True, rule[1:] != rule[:-1])[: len(program)] | first
    return program[changes], location[changes], rule[changes]


@dataclass(frozen=True)
class _Run:
    """m instructions; the first one of each program sets the initial state."""

    program: np.ndarray  # (m,)
    last: np.ndarray  # (p,): the last instruction of each program
    location: np.ndarray  # (m,): bytes from the function's start, after the instruction
    bad: np.ndarray  # bool (p,)
    set: State  # (m,): what each instruction sets, if it sets something
    cfa: np.ndarray  # (m,): the instruction that set the CFA's kind, as of after this one
    offset: np.ndarray
    rbp: np.ndarray
    back: np.ndarray

    def state(self, at: np.ndarray) -> State:
        """Returns the state after instructions."""
        rbp = self.rbp[at]
        return State(
            self.set.cfa_kind[self.cfa[at]], self.set.cfa_offset[self.offset[at]],
            self.set.rbp_kind[rbp], self.set.rbp_offset[rbp], self.set.return_kind[self.back[at]],
        )  # fmt: skip


def _run(programs: Programs) -> _Run:
    instructions = op.cut(programs.data, programs.begin, programs.end).led(_LEAD)
    count, index = len(programs.begin), np.arange(len(instructions.program))
    lead = np.flatnonzero(instructions.code == _LEAD)
    moved = (
        np.where(_among(instructions.code, _ADVANCES), instructions.value, 0)
        * programs.code_align[instructions.program]
    )
    moved = np.cumsum(moved)
    location = moved - moved[lead][instructions.program]
    unmatched, state_from = _remembered(instructions)
    bad = instructions.bad.copy()
    bad[unmatched] = True

    def holder(sets: np.ndarray, register: int | None = None) -> np.ndarray:
        """Returns for each instruction the last one up to it that `sets` (bool) the value."""
        source = np.where(sets | (instructions.code == _LEAD), index, -1)
        if register is not None:
            back = np.flatnonzero((instructions.register == register) & _among(instructions.code, _RESTORES))
            source[back] = lead[instructions.program[back]]
        return _last(source, state_from)

    value = _settings(programs, instructions, lead)
    return _Run(
        instructions.program, np.append(lead[1:], len(index))[:count] - 1, location, bad, value,
        holder(_among(instructions.code, _CFA_KINDS)),
        holder(_among(instructions.code, _CFA_OFFSETS)),
        holder((instructions.register == RBP) & _among(instructions.code, _REGISTERS), RBP),
        holder((instructions.register == RIP) & _among(instructions.code, _REGISTERS), RIP),
    )  # fmt: skip


def _among(codes: np.ndarray, wanted: list[int]) -> np.ndarray:
    """Returns which of `codes` (uint8) are wanted (bool)."""
    table = np.zeros(256, bool)
    table[wanted] = True
    result: np.ndarray = table[codes]
    return result


_LEAD = 0xFF  # no instruction
_ADVANCES = [op.ADVANCE, op.ADVANCE1, op.ADVANCE2, op.ADVANCE4]
_CFA_KINDS = [op.DEF_CFA, op.DEF_CFA_SF, op.DEF_CFA_REGISTER, op.DEF_CFA_EXPRESSION]
_CFA_SIGNED = [op.DEF_CFA_SF, op.DEF_CFA_OFFSET_SF]
_CFA_OFFSETS = [op.DEF_CFA, op.DEF_CFA_OFFSET, op.DEF_CFA_EXPRESSION, *_CFA_SIGNED]
_OFFSETS = [op.OFFSET, op.OFFSET_EXTENDED, op.OFFSET_EXTENDED_SF, op.NEGATIVE_OFFSET_EXTENDED]
_ELSEWHERE = [op.REGISTER, op.EXPRESSION, op.VAL_OFFSET, op.VAL_OFFSET_SF, op.VAL_EXPRESSION]
_REGISTERS = [*_OFFSETS, *_ELSEWHERE, op.UNDEFINED, op.SAME_VALUE]
_RESTORES = [op.RESTORE, op.RESTORE_EXTENDED]


def _settings(programs: Programs, instructions: op.Instructions, lead: np.ndarray) -> State:
    """Returns what instructions set, for those that set something."""
    code, value = instructions.code, instructions.value
    multiplied = np.flatnonzero(_among(code, _CFA_SIGNED + _OFFSETS))
    value[multiplied] *= programs.data_align[instructions.program[multiplied]]
    value[code == op.NEGATIVE_OFFSET_EXTENDED] *= -1
    by_offset = _among(code, _OFFSETS)
    state = State(
        cfa_kind=_KIND_OF_REGISTER[np.clip(instructions.register, 0, RIP)],
        cfa_offset=value,
        rbp_kind=np.where(by_offset, RBP_AT_CFA, np.where(code == op.SAME_VALUE, RBP_SAME, RBP_UNDEFINED)),
        rbp_offset=value.copy(),
        return_kind=np.where(
            by_offset & (value == -8),
            _RETURN_AT_CFA,
            np.where(code == op.UNDEFINED, _RETURN_UNDEFINED, _RETURN_ELSEWHERE),
        ),
    )
    for row in np.flatnonzero(code == op.DEF_CFA_EXPRESSION).tolist():
        state.cfa_kind[row], state.cfa_offset[row] = cfi_expression.cfa(_block(programs, instructions, row))
    for row in np.flatnonzero((code == op.EXPRESSION) & (instructions.register == RBP)).tolist():
        operand = cfi_expression.parse(_block(programs, instructions, row))
        if operand is not None and operand.register == RBP and not operand.deref:
            state.rbp_kind[row], state.rbp_offset[row] = RBP_AT_RBP, operand.offset
    for field in fields(State):
        getattr(state, field.name)[lead] = getattr(programs.initial, field.name)
    return state


def _block(programs: Programs, instructions: op.Instructions, row: int) -> bytes:
    return programs.data[instructions.value[row] : instructions.end[row]].tobytes()


def _remembered(instructions: op.Instructions) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Returns the programs that restore a state which they never remembered; and the instructions that restore a state,
    each with the one that remembered it."""
    chosen = np.flatnonzero(_among(instructions.code, [op.REMEMBER_STATE, op.RESTORE_STATE]))
    pushes, program = instructions.code[chosen] == op.REMEMBER_STATE, instructions.program[chosen]
    depth = np.cumsum(np.where(pushes, 1, -1))
    first = np.append(True, program[1:] != program[:-1])[: len(chosen)]
    before = (depth - np.where(pushes, 1, -1))[first]
    depth -= np.repeat(before, np.diff(np.append(np.flatnonzero(first), len(chosen))))
    unmatched = np.unique(program[depth < 0])
    level = np.where(pushes, depth, depth + 1)
    order = np.lexsort((chosen, level, program))  # at one level of one program they take turns
    pops = np.flatnonzero(~pushes[order])
    pops = pops[~np.isin(program[order][pops], unmatched)]
    return unmatched, (chosen[order][pops], chosen[order][pops - 1])


def _last(source: np.ndarray, state_from: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Returns for each instruction the last `source` up to it that is not -1; a restored state counts as it was when it
    was remembered."""
    restores, remembers = state_from
    sets = source >= 0
    sets[restores] = True
    last = np.maximum.accumulate(np.where(sets, np.arange(len(source)), 0))
    target = source.copy()
    target[restores] = restores
    earlier = last[remembers]
    while True:  # each turn goes twice as far back, along states remembered in states that were restored
        target[restores] = earlier
        further = target[earlier]
        if np.array_equal(further, earlier):
            return target[last]
        earlier = further


def _rules(state: State, signal: np.ndarray) -> np.ndarray:
    """Returns rules as uint64. What a rule cannot express is NONE, or an rbp that is UNDEFINED."""
    kind, offset = state.cfa_kind, state.cfa_offset
    wide = (offset < -(1 << 31)) | (offset >= 1 << 31)
    rbp_kind, rbp_offset = state.rbp_kind, state.rbp_offset
    relative = (rbp_kind == RBP_AT_CFA) | (rbp_kind == RBP_AT_RBP)
    far = relative & ((rbp_offset < -(1 << 15)) | (rbp_offset >= 1 << 15))
    rbp_kind = np.where(far, RBP_UNDEFINED, rbp_kind)
    rbp_offset = np.where(relative & ~far, rbp_offset, 0)
    rule = kind | rbp_kind << 8 | (rbp_offset & 0xFFFF) << 16 | (offset & 0xFFFFFFFF) << 32
    rule[(kind == CFA_NONE) | wide | (state.return_kind == _RETURN_ELSEWHERE)] = NONE
    rule[signal & (kind == CFA_RSP_DEREF) & (offset == _SIGNAL_CFA)] = pack(CFA_SIGNAL)
    rule[state.return_kind == _RETURN_UNDEFINED] = pack(CFA_END)
    result: np.ndarray = rule.view(np.uint64)
    return result
