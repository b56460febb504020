"""The table `recent_operations`: what operations did in each minute, summed up block by block as rows were stored.
docs/storage.md says what its sums are worth."""

from icestream.times import DAY_NS

RECENT_DAYS = 3
RECENT_NS = RECENT_DAYS * DAY_NS
"""How long its rows are kept."""
HEAVIEST = 20
"""How many traces it keeps of each minute of an operation."""


def packed_cpu(packed: str) -> str:
    """Returns the CPU of an element of `heaviest` in nanoseconds. `packed`: an SQL expression of the element."""
    return f"bitNot(toUInt64(bitShiftRight({packed}, 128)))"


def packed_trace(packed: str) -> str:
    """Returns the trace ID of an element of `heaviest`, of type FixedString(16)."""
    return f"reinterpretAsFixedString(toUInt128(bitAnd({packed}, toUInt256(bitNot(toUInt128(0))))))"
