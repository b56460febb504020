"""What differs between instruction sets in call frame information.

Numbers of registers: System V ABI, AMD64 supplement, 3.6.2; DWARF for the Arm 64-bit Architecture, 4.1.
"""

from dataclasses import dataclass

import numpy as np

from collector.elf import headers
from collector.unwind.cfi.steps import CALLEE_SAVED

RBP, RSP, RIP = 6, 7, 16
"""The numbers that programs are run with, of any machine: frame pointer, stack pointer, return address."""
OTHER = 17


@dataclass(frozen=True)
class Machine:
    """`numbers`: int64, by DWARF's number what programs are run with; `followed`: registers, and the bit from which on
    a state has what is said of each, in as many bits as `mask`."""

    elf: int
    return_address: int
    numbers: np.ndarray
    followed: tuple[tuple[int, int], ...]
    mask: int


def _numbers(known: dict[int, int]) -> np.ndarray:
    return np.array([known.get(number, OTHER) for number in range(64)], np.int64)


AMD64 = Machine(
    headers.X86_64, RIP, _numbers({number: number for number in range(RIP + 1)}),
    tuple((number, 8 * i) for i, number in enumerate((*CALLEE_SAVED, RIP))), 0xFF,
)  # fmt: skip
ARM64 = Machine(headers.AARCH64, 30, _numbers({29: RBP, 31: RSP, 30: RIP}), ((RBP, 0), (RIP, 16)), 0xFFFF)
MACHINES = {machine.elf: machine for machine in (AMD64, ARM64)}
