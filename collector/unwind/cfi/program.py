"""Runs the call frame programs of many functions at once, and returns rules.

The state after an instruction is what the last instructions before it set; numpy finds those for millions of
instructions at a time. The CFA, the callee-saved registers and the return address are followed (DWARF 5, section
6.4.2).
"""

from dataclasses import dataclass, fields

import numpy as np

from collector.unwind.cfi import expression
from collector.unwind.cfi import instructions as op
from collector.unwind.cfi.machine import ARM64, RBP, RIP, RSP, Machine
from collector.unwind.cfi.steps import (
    CALLEE_SAVED,
    CFA_END,
    CFA_NONE,
    CFA_RBP,
    CFA_REGISTER,
    CFA_RSP,
    CFA_RSP_DEREF,
    CFA_SIGNAL,
    IN_LINK_REGISTER,
    LOST,
    LOST_WORDS,
    MAX_WORDS,
    NONE,
    PUSHED,
    RETURN_REGISTER,
    SAVED_BY_RBP,
    pack,
)

_BY_RBP = 16
"""What a rule says of a callee-saved register (LOST at most), + _BY_RBP where it counts from rbp."""
_RETURN_ELSEWHERE, _RETURN_AT_CFA, _RETURN_UNDEFINED, _RETURN_IN = 0, 1, 2, 16
"""Where the return address is; _RETURN_IN + n: in the register with that number."""
_WORDS_UNDEFINED = LOST_WORDS + 1
_PUSHES_BYTES = 32
_SIGNAL_CFA = 160  # offset of the interrupted rsp in the frame of rt_sigreturn
_KIND_OF_REGISTER = np.array([CFA_REGISTER + n for n in range(RIP)] + [CFA_NONE])
_KIND_OF_REGISTER[[RBP, RSP]] = CFA_RBP, CFA_RSP


@dataclass(frozen=True)
class State:
    """What instructions set, or the state after them; each array is int64 (n,)."""

    cfa_kind: np.ndarray
    cfa_offset: np.ndarray
    registers: np.ndarray  # what is said of each register that is followed; of an instruction only of the one it sets

    def select(self, rows: np.ndarray) -> "State":
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
    machine: Machine


def unset(count: int) -> State:
    """Returns the state before the program of a CIE."""
    zero = np.zeros(count, np.int64)
    return State(zero + CFA_NONE, zero, zero)


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
    arm64 = programs.machine is ARM64
    rule = _arm64_rules(run.state(chosen)) if arm64 else _rules(run.state(chosen), programs.signal[program])
    rule[run.bad[program]] = NONE
    first = np.append(True, program[1:] != program[:-1])[: len(program)]
    location = np.where(first, 0, location)
    rule = rule if arm64 else _join_pushes(location, rule, first)
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
    registers: "_Registers"

    def state(self, at: np.ndarray) -> State:
        """Returns the state after instructions."""
        return State(
            self.set.cfa_kind[self.cfa[at]], self.set.cfa_offset[self.offset[at]], self.registers.after(at)
        )  # fmt: skip


@dataclass(frozen=True)
class _Registers:
    """The k instructions that say something of a register that is followed, or remember or restore states, and the
    first of each program."""

    at: np.ndarray  # (k,): which of all instructions
    register: np.ndarray  # (k,): the register that it sets or restores
    value: np.ndarray  # (k,): to what it sets it
    lead: np.ndarray  # bool (k,): it sets all registers
    back: np.ndarray  # (k,): for one that restores the initial value, the row that set it; else -1
    state_from: tuple[np.ndarray, np.ndarray]  # rows that restore states, and rows that remembered them
    machine: Machine

    def after(self, instructions: np.ndarray) -> np.ndarray:
        """Returns what is said of registers (as State has it), as of after instructions."""
        row = np.searchsorted(self.at, instructions, side="right") - 1
        said = np.zeros(len(instructions), np.int64)
        index = np.arange(len(self.at))
        for number, shift in self.machine.followed:
            sets = self.register == number
            source = np.where(sets & (self.back >= 0), self.back, np.where(sets | self.lead, index, -1))
            setter = _last(source, self.state_from)[row]
            value = self.value[setter]
            said |= np.where(self.lead[setter], value & self.machine.mask << shift, value << shift)
        return said


def _run(programs: Programs) -> _Run:
    instructions = op.cut(programs.data, programs.begin, programs.end).led(_LEAD).numbered(programs.machine.numbers)
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

    def holder(codes: list[int]) -> np.ndarray:
        """Returns for each instruction the last one up to it that has one of these codes, or is the first."""
        return _last(np.where(_among(instructions.code, [*codes, _LEAD]), index, -1), state_from)

    set_ = _settings(programs, instructions, lead)
    return _Run(
        instructions.program, np.append(lead[1:], len(index))[:count] - 1, location, bad, set_, holder(_CFA_KINDS),
        holder(_CFA_OFFSETS), _registers(instructions, set_, lead, state_from, programs.machine),
    )  # fmt: skip


def _registers(
    instructions: op.Instructions, set_: State, lead: np.ndarray, state_from: tuple[np.ndarray, np.ndarray],
    machine: Machine,
) -> _Registers:  # fmt: skip
    code, register = instructions.code, np.where(instructions.register > RIP, 0, np.maximum(instructions.register, 0))
    followed = np.isin(np.arange(RIP + 1), [number for number, _ in machine.followed])[register] & _among(
        code, _REGISTERS + _RESTORES
    )
    at = np.flatnonzero(followed | _among(code, [_LEAD, op.REMEMBER_STATE, op.RESTORE_STATE]))
    restores = _among(code[at], _RESTORES)
    leads = np.searchsorted(at, lead)
    return _Registers(
        at=at,
        register=np.where(followed[at], register[at], -1),
        value=set_.registers[at],
        lead=code[at] == _LEAD,
        back=np.where(restores, leads[instructions.program[at]], -1),
        state_from=(np.searchsorted(at, state_from[0]), np.searchsorted(at, state_from[1])),
        machine=machine,
    )


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
    by_offset, to_rip = _among(code, _OFFSETS), instructions.register == RIP
    if programs.machine is ARM64:
        elsewhere = np.where(code == op.UNDEFINED, _WORDS_UNDEFINED, np.where(code == op.SAME_VALUE, 0, LOST_WORDS))
        said = np.where(by_offset, _words(-value), elsewhere)
        kind = np.where(
            code == op.DEF_CFA_EXPRESSION, CFA_NONE, _KIND_OF_REGISTER[np.clip(instructions.register, 0, RIP)]
        )
        return _led(programs, State(kind, value, said), lead)
    said = np.where(by_offset, _place(-value), np.where(code == op.SAME_VALUE, 0, LOST))
    undefined = np.where(code == op.UNDEFINED, _RETURN_UNDEFINED, _RETURN_ELSEWHERE)
    said[to_rip] = np.where(by_offset & (value == -8), _RETURN_AT_CFA, undefined)[to_rip]
    in_register = np.flatnonzero(to_rip & (code == op.REGISTER) & (value >= 0) & (value < RIP))
    said[in_register] = _RETURN_IN + value[in_register]
    state = State(_KIND_OF_REGISTER[np.clip(instructions.register, 0, RIP)], value, said)
    for row in np.flatnonzero(code == op.DEF_CFA_EXPRESSION).tolist():
        state.cfa_kind[row], state.cfa_offset[row] = expression.cfa(_block(programs, instructions, row))
    callee_saved = np.isin(instructions.register, CALLEE_SAVED)
    for row in np.flatnonzero((code == op.EXPRESSION) & callee_saved).tolist():
        operand = expression.parse(_block(programs, instructions, row))
        if operand is not None and operand.register == RBP and not operand.deref:
            said[row] = _BY_RBP + int(_place(np.array(16 - operand.offset)))
    return _led(programs, state, lead)


def _led(programs: Programs, state: State, lead: np.ndarray) -> State:
    """Returns what instructions set, the first of each program to the initial state."""
    for field in fields(State):
        getattr(state, field.name)[lead] = getattr(programs.initial, field.name)
    return state


def _words(below: np.ndarray) -> np.ndarray:
    """What a rule for aarch64 says of a register that lies so many bytes below the CFA."""
    return np.where((below % 8 == 0) & (below >= 8) & (below <= 8 * MAX_WORDS), below // 8, LOST_WORDS)


def _place(below: np.ndarray) -> np.ndarray:
    """What a rule says of a register that lies so many bytes below the CFA: at least the second word, as the return
    address is the first."""
    return np.where((below % 8 == 0) & (below >= 16) & (below < 8 + 8 * LOST), below // 8 - 1, LOST)


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


def _join_pushes(location: np.ndarray, rule: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Where a function with a frame pointer pushes registers, its rules differ in these only: one takes the place of
    all. Otherwise programs with frame pointers would have a quarter more rows. `first` (bool): the first of a function.
    """
    if not len(rule):
        return rule
    registers, each = np.uint64(0xFFFFF000), np.uint64(0x11111000)  # but for rbp
    before, after = rule[:-1], rule[1:]
    said, lost = before.copy(), after.copy()
    for shift in (1, 2, 3):
        said |= before >> np.uint64(shift)
        lost &= after >> np.uint64(shift)
    joins = ((before ^ after) & ~registers == 0) & (before & np.uint64(0x7F) == CFA_RBP) & ~first[1:]
    joins &= ((before ^ after) & ((said & each) * np.uint64(LOST)) == 0) & (lost & each == 0)
    joins &= np.diff(location) <= _PUSHES_BYTES
    index = np.arange(len(rule))
    last = np.where(np.append(joins, False), len(rule), index)
    last = np.minimum.accumulate(last[::-1])[::-1]
    joined: np.ndarray = rule[last]
    joined[np.append(joins, False) | np.append(False, joins)] |= np.uint64(PUSHED)
    return joined


def _rules(state: State, signal: np.ndarray) -> np.ndarray:
    """Returns rules as uint64. What a rule cannot express is NONE, or a register that is LOST."""
    kind, offset, registers = state.cfa_kind, state.cfa_offset, state.registers
    back = registers >> 8 * len(CALLEE_SAVED) & 0xFF
    wide = (offset < -(1 << 31)) | (offset >= 1 << 31)
    in_register = (back >= _RETURN_IN) & (kind == CFA_RSP)
    how = np.where(in_register, RETURN_REGISTER + back - _RETURN_IN, kind)
    by_rbp = registers & _BY_RBP  # where rbp itself does
    for i in range(len(CALLEE_SAVED)):
        said = registers >> 8 * i & 0xFF
        how |= np.where((said == 0) | (said & _BY_RBP == by_rbp), said & LOST, LOST) << 8 + 4 * i
    how |= np.where(by_rbp != 0, SAVED_BY_RBP, 0)
    rule = how | (offset & 0xFFFFFFFF) << 32
    rule[(kind == CFA_NONE) | wide | ~((back == _RETURN_AT_CFA) | in_register)] = NONE
    rule[signal & (kind == CFA_RSP_DEREF) & (offset == _SIGNAL_CFA)] = pack(CFA_SIGNAL)
    rule[back == _RETURN_UNDEFINED] = pack(CFA_END)
    result: np.ndarray = rule.view(np.uint64)
    return result


def _arm64_rules(state: State) -> np.ndarray:
    """Returns rules for aarch64 as uint64; NONE for what a rule cannot express."""
    kind, offset = state.cfa_kind, state.cfa_offset
    (_, at_frame), (_, at_return) = ARM64.followed
    frame, back = state.registers >> at_frame & ARM64.mask, state.registers >> at_return & ARM64.mask
    in_register = (back == 0) & (kind == CFA_RSP)
    rule = np.where(in_register, IN_LINK_REGISTER, kind) | (offset & 0xFFFFFFFF) << 32
    rule |= np.minimum(frame, LOST_WORDS) << 8 | np.where(back <= MAX_WORDS, back, 0) << 20
    wide = (offset < -(1 << 31)) | (offset >= 1 << 31)
    known = in_register | ((back > 0) & (back <= MAX_WORDS))
    rule[~np.isin(kind, [CFA_RSP, CFA_RBP]) | wide | ~known] = NONE
    rule[back == _WORDS_UNDEFINED] = pack(CFA_END)
    result: np.ndarray = rule.view(np.uint64)
    return result
