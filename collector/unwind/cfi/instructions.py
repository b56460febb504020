"""Cuts many call frame programs into instructions at once.

Instructions: DWARF 5, section 6.4.2, and GNU's extensions.
"""

from dataclasses import dataclass, replace

import numpy as np

from collector.unwind.cfi import leb

NOP, ADVANCE1, ADVANCE2, ADVANCE4 = 0x00, 0x02, 0x03, 0x04
OFFSET_EXTENDED, RESTORE_EXTENDED, UNDEFINED, SAME_VALUE, REGISTER = 0x05, 0x06, 0x07, 0x08, 0x09
REMEMBER_STATE, RESTORE_STATE = 0x0A, 0x0B
DEF_CFA, DEF_CFA_REGISTER, DEF_CFA_OFFSET, DEF_CFA_EXPRESSION, EXPRESSION = 0x0C, 0x0D, 0x0E, 0x0F, 0x10
OFFSET_EXTENDED_SF, DEF_CFA_SF, DEF_CFA_OFFSET_SF = 0x11, 0x12, 0x13
VAL_OFFSET, VAL_OFFSET_SF, VAL_EXPRESSION = 0x14, 0x15, 0x16
NEGATE_RA_STATE, ARGS_SIZE, NEGATIVE_OFFSET_EXTENDED = 0x2D, 0x2E, 0x2F
ADVANCE, OFFSET, RESTORE = 0x40, 0x80, 0xC0  # the upper two bits; the lower six are an operand

_PRIMARY = np.array([code & 0xC0 if code >= ADVANCE else code for code in range(256)], np.uint8)


def _table(*codes: int) -> np.ndarray:
    """bool (256,): by opcode, whether it is one of `codes`."""
    among: np.ndarray = np.isin(_PRIMARY, codes)
    return among


_INSIDE = _table(ADVANCE, OFFSET, RESTORE)
_BLOCKS = _table(DEF_CFA_EXPRESSION, EXPRESSION, VAL_EXPRESSION)
_SIGNEDS = _table(OFFSET_EXTENDED_SF, DEF_CFA_SF, VAL_OFFSET_SF, DEF_CFA_OFFSET_SF)
_UNSIGNEDS = _BLOCKS | _table(
    OFFSET, OFFSET_EXTENDED, NEGATIVE_OFFSET_EXTENDED, REGISTER, DEF_CFA, DEF_CFA_OFFSET, VAL_OFFSET, ARGS_SIZE
)
_REGISTERS = _table(
    OFFSET_EXTENDED, OFFSET_EXTENDED_SF, NEGATIVE_OFFSET_EXTENDED, RESTORE_EXTENDED, UNDEFINED, SAME_VALUE, REGISTER,
    DEF_CFA, DEF_CFA_SF, DEF_CFA_REGISTER, EXPRESSION, VAL_OFFSET, VAL_OFFSET_SF, VAL_EXPRESSION,
)  # fmt: skip
"""LEB128 operands: a register, then a number; of _BLOCKS the number is the size of the expression that follows."""
_FIXED = {ADVANCE1: "<u1", ADVANCE2: "<u2", ADVANCE4: "<u4"}
_NUMBERS = _REGISTERS.astype(np.uint8) + _UNSIGNEDS + _SIGNEDS
_UNKNOWN = ~(_INSIDE | _table(NOP, NEGATE_RA_STATE, REMEMBER_STATE, RESTORE_STATE, *_FIXED)) & (_NUMBERS == 0)
_SIZES = np.ones(256, np.int64)  # of opcode and fixed operand
_SIZES[list(_FIXED)] += [np.dtype(number_format).itemsize for number_format in _FIXED.values()]
_FAR = 1 << 40


@dataclass(frozen=True)
class Instructions:
    """m instructions, program after program. The arrays have the shape (m,); missing operands are 0."""

    program: np.ndarray  # int64
    code: np.ndarray  # uint8: the opcode; only its upper two bits if it contains an operand
    register: np.ndarray  # int64
    value: np.ndarray  # int64: offset or advance (not multiplied), or where the expression begins in the data
    end: np.ndarray  # int64: where the instruction ends, and so its expression
    bad: np.ndarray  # bool (p,): programs with an instruction that is unknown or cut off

    def led(self, code: int) -> "Instructions":
        """Returns the instructions with one more, `code`, in front of each program."""
        leads = np.arange(len(self.bad))
        at = np.searchsorted(self.program, leads)
        program, codes = np.insert(self.program, at, leads), np.insert(self.code, at, code)
        register, value, end = (np.insert(column, at, 0) for column in (self.register, self.value, self.end))
        return Instructions(program, codes, register, value, end, self.bad)

    def numbered(self, numbers: np.ndarray) -> "Instructions":
        """Returns the instructions with other numbers for registers."""
        return replace(self, register=numbers[np.clip(self.register, 0, len(numbers) - 1)])


def cut(data: np.ndarray, begin: np.ndarray, end: np.ndarray) -> Instructions:
    """Returns the instructions of the programs data[begin:end] (uint8), which ascend and do not overlap."""
    if not len(begin):
        nothing = np.zeros(0, np.int64)
        return Instructions(nothing, nothing.astype(np.uint8), nothing, nothing, nothing, nothing.astype(bool))
    low = int(begin[0])
    window = np.append(data[low : int(end[-1])], np.zeros(leb.PADDING, np.uint8))
    following = _following(window)
    at, bad = _reached(following, begin - low, end - low)
    program = np.searchsorted(begin - low, at, side="right") - 1
    opcode = window[at]
    register, value = _operands(window, at, opcode)
    bad[program[np.abs(value) > _FAR]] = True
    value[_BLOCKS[opcode]] += low
    return Instructions(program, _PRIMARY[opcode], register, value, following[at] + low, bad)


def _following(data: np.ndarray) -> np.ndarray:
    """Returns int64 (n,): where the next instruction begins if one begins at this byte; far beyond the end if none
    can."""
    last = len(data) - 1
    ends = leb.ends(data)
    following: np.ndarray = np.arange(len(data), dtype=np.int64) + _SIZES[data]
    numbers = _NUMBERS[data]
    for count in (1, 2):
        rows = np.flatnonzero(numbers >= count)
        following[rows] = ends[np.minimum(following[rows], last)]
    blocks = np.flatnonzero(_BLOCKS[data])
    at = np.minimum(blocks + 1, last)
    named = data[blocks] != DEF_CFA_EXPRESSION
    at[named] = np.minimum(ends[at[named]], last)
    size, _ = leb.unsigned(data, at)
    following[blocks] += np.where((size >= 0) & (size < len(data)), size, _FAR)
    following[_UNKNOWN[data]] = _FAR
    return following


def _reached(following: np.ndarray, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns where instructions begin, ascending, and which programs (bool (p,)) end within an instruction."""
    starts, bad = np.zeros(len(following), bool), np.zeros(len(begin), bool)
    program = np.flatnonzero(begin < end)
    at, until = begin[program], end[program]
    while len(at):  # one instruction of each program that has one more
        starts[at] = True
        at = following[at]
        if not (at < until).all():
            bad[program[at > until]] = True
            more = at < until
            at, until, program = at[more], until[more], program[more]
    return np.flatnonzero(starts), bad


def _operands(data: np.ndarray, at: np.ndarray, opcode: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the registers and values of the instructions at `at`."""
    inside, advance = _INSIDE[opcode], _PRIMARY[opcode] == ADVANCE
    register = np.where(inside & ~advance, opcode & 0x3F, 0).astype(np.int64)
    value = np.where(advance, opcode & 0x3F, 0).astype(np.int64)
    for code, number_format in _FIXED.items():
        rows = np.flatnonzero(opcode == code)
        value[rows] = leb.words(data, at[rows] + 1, number_format)
    position = at + 1
    rows = np.flatnonzero(_REGISTERS[opcode])
    register[rows], position[rows] = leb.unsigned(data, position[rows])
    rows = np.flatnonzero(_UNSIGNEDS[opcode])
    value[rows], position[rows] = leb.unsigned(data, position[rows])
    rows = np.flatnonzero(_SIGNEDS[opcode])
    value[rows], _ = leb.signed(data, position[rows])
    rows = np.flatnonzero(_BLOCKS[opcode])
    value[rows] = position[rows]
    return register, value
