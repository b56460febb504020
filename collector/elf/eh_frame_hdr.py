"""The search table of .eh_frame_hdr: where functions with unwinding information begin (LSB 5.0 Core, 10.6.2)."""

import struct
from typing import NamedTuple

import numpy as np

HEADER_BYTES = 12
ENTRY_BYTES = 8
_VERSION = 1
_PC_RELATIVE_4, _UNSIGNED_4, _DATA_RELATIVE_4 = 0x1B, 0x03, 0x3B
_START = bytes((_VERSION, _PC_RELATIVE_4, _UNSIGNED_4, _DATA_RELATIVE_4))  # the encodings that all linkers write


class SearchTable(NamedTuple):
    """ELF virtual addresses: of .eh_frame, and int64 (n,) of functions and of their FDEs."""

    eh_frame: int
    function: np.ndarray
    fde: np.ndarray


def entry_count(header: bytes) -> int:
    """Returns how many entries the table says it has, by its first HEADER_BYTES; 0 if it has no table as all linkers
    write it."""
    if len(header) < HEADER_BYTES or header[:4] != _START:
        return 0
    return int(struct.unpack_from("<I", header, 8)[0])


def read_table(data: bytes, vaddr: int) -> SearchTable | None:
    """Returns the table at the ELF virtual address `vaddr`, as far as `data` reaches; None if there is no such one."""
    count = min(entry_count(data), max(len(data) - HEADER_BYTES, 0) // ENTRY_BYTES)
    if not count:
        return None
    rows = np.frombuffer(data, "<i4", 2 * count, HEADER_BYTES).reshape(-1, 2).astype(np.int64)
    rows = (rows.view(np.uint64) + np.uint64(vaddr)).view(np.int64)  # addresses may wrap around
    return SearchTable(vaddr + 4 + struct.unpack_from("<i", data, 4)[0], rows[:, 0], rows[:, 1])
