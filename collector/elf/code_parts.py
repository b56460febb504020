"""The parts of a function's code: compilers move what is seldom executed away from the rest of it.

The other part has no name once the file is stripped. But conditional jumps lead there, which no function has to another
one, and it has an entry of its own in the search table of .eh_frame_hdr.
"""

import numpy as np

from collector.elf import eh_frame_hdr
from collector.elf.dynamic import Symbol
from collector.elf.file import ElfFile
from collector.elf.headers import GNU_EH_FRAME

_JUMP_BYTES = 6  # Jcc rel32: 0F 80..8F, and the distance from its end (Intel's manual, volume 2)
_LEAST_JUMPS = 2
"""Other bytes may look like one jump anywhere."""

_MAX_CODE_BYTES = 1 << 20
_MAX_TABLE_BYTES = 32 << 20


def code_parts(elf: ElfFile, function: Symbol) -> list[tuple[int, int]]:
    """Returns one or two [start, end) of ELF virtual addresses, all of a function's code; only one on other
    architectures than x86-64. The second one reaches up to the next entry of the table. Raises OSError."""
    code = np.frombuffer(elf.at(function.value, min(function.size, _MAX_CODE_BYTES)), np.uint8)
    start, end = function.value, function.value + len(code)
    segment = next((segment for segment in elf.segments if segment.kind == GNU_EH_FRAME), None)
    if segment is None or len(code) < _JUMP_BYTES:
        return [(start, end)]
    table = eh_frame_hdr.read_table(elf.at(segment.vaddr, min(segment.size, _MAX_TABLE_BYTES)), segment.vaddr)
    if table is None:
        return [(start, end)]
    at = np.flatnonzero((code[: 1 - _JUMP_BYTES] == 0x0F) & (code[1 : 2 - _JUMP_BYTES] >> 4 == 8))
    distance = np.ascontiguousarray(code[at[:, None] + np.arange(2, _JUMP_BYTES)]).view("<i4")[:, 0]
    target = start + at + _JUMP_BYTES + distance
    starts = np.sort(table.function)
    part = np.searchsorted(starts, target[(target < start) | (target >= end)], "right") - 1
    jumps = np.bincount(part[(part >= 0) & (part < len(starts) - 1)], minlength=1)
    other = int(jumps.argmax())
    if jumps[other] < _LEAST_JUMPS:
        return [(start, end)]
    return [(start, end), (int(starts[other]), int(starts[other + 1]))]
