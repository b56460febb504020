"""Turns the DWARF expressions that compilers and assemblers use in call frame information into rules.

Format: DWARF 5, sections 2.5 and 6.4.2.
"""

from functools import lru_cache
from typing import NamedTuple

from collector.unwind.cfi import leb
from collector.unwind.cfi.machine import RBP, RIP, RSP
from collector.unwind.cfi.steps import CFA_NONE, CFA_PLT, CFA_RBP, CFA_RBP_DEREF, CFA_REGISTER, CFA_RSP, CFA_RSP_DEREF

_DEREF, _AND, _PLUS, _SHL, _GE, _PLUS_UCONST = 0x06, 0x1A, 0x22, 0x24, 0x2A, 0x23
_LIT0, _LIT31, _BREG0, _BREG31 = 0x30, 0x4F, 0x70, 0x8F
_MAX_BYTES = 64
# DW_OP_breg7 8, breg16 0, lit15, and, lit<N>, ge, lit3, shl, plus: what linkers say of .plt
_PLT_START, _PLT_END = bytes([0x77, 8, 0x80, 0, 0x3F, _AND]), bytes([_GE, 0x33, _SHL, _PLUS])


class Operand(NamedTuple):
    """The value register + offset; if `deref`, the word at that address, + added."""

    register: int
    offset: int
    deref: bool = False
    added: int = 0


def cfa(expression: bytes) -> tuple[int, int]:
    """Returns (cfa_kind, cfa_offset) of a DW_CFA_def_cfa_expression; CFA_NONE if no rule can express it."""
    if expression.startswith(_PLT_START) and expression.endswith(_PLT_END) and len(expression) == 11:
        literal = expression[6] - _LIT0
        return (CFA_PLT, literal) if 0 <= literal <= 15 else (CFA_NONE, 0)
    operand = parse(expression)
    if operand is None or operand.register >= RIP:
        return CFA_NONE, 0
    if not operand.deref:
        kind = {RSP: CFA_RSP, RBP: CFA_RBP}.get(operand.register, CFA_REGISTER + operand.register)
        return (kind, operand.offset) if _fits(operand.offset, 31) else (CFA_NONE, 0)
    kind = {RSP: CFA_RSP_DEREF, RBP: CFA_RBP_DEREF}.get(operand.register, CFA_NONE)
    if kind == CFA_NONE or not _fits(operand.offset, 15) or not _fits(operand.added, 15):
        return CFA_NONE, 0
    return kind, operand.added << 16 | operand.offset & 0xFFFF


@lru_cache(1024)  # a compiler writes the same few again and again
def parse(expression: bytes) -> Operand | None:
    """Returns the meaning of an expression of one register, at most one DW_OP_deref and sums of constants; None for any
    other."""
    if not 2 <= len(expression) <= _MAX_BYTES or not _BREG0 <= expression[0] <= _BREG31:
        return None
    try:
        return _parse(expression)
    except (IndexError, ValueError):  # a number that is cut off, or too long
        return None


def _parse(expression: bytes) -> Operand | None:
    offset, at = leb.read_signed(expression, 1)
    operand, literal = Operand(expression[0] - _BREG0, offset), None
    while at < len(expression):
        operator, at = expression[at], at + 1
        if literal is not None:
            if operator != _PLUS:
                return None
            operand, literal = _plus(operand, literal), None
        elif operator == _DEREF and not operand.deref:
            operand = operand._replace(deref=True)
        elif operator == _PLUS_UCONST:
            value, at = leb.read_unsigned(expression, at)
            operand = _plus(operand, value)
        elif _LIT0 <= operator <= _LIT31:
            literal = operator - _LIT0
        else:
            return None
    return operand if literal is None else None


def _plus(operand: Operand, value: int) -> Operand:
    if operand.deref:
        return operand._replace(added=operand.added + value)
    return operand._replace(offset=operand.offset + value)


def _fits(value: int, bits: int) -> bool:
    return -(1 << bits) <= value < 1 << bits
