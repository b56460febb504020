"""Where the functions without a symbol begin and end: by the call frame information, which stripped files have as well.

The linkage tables (.plt) have call frame information as one function each.
"""

import numpy as np

from collector.elf.error import ElfError
from collector.elf.reader import MAX_OFFSET, Read
from collector.unwind.cfi import code_file, eh_frame
from collector.unwind.cfi import records as cfi_records
from collector.unwind.cfi.code_file import CodeFile
from collector.unwind.cfi.records import Fdes
from icestream.columns import address_ranges
from icestream.symbols.unnamed_functions import LIMIT, UnnamedFunctions

MAX_BYTES = 64 << 20
"""So much call frame information is read: about a million functions."""


def unnamed_functions(named: tuple[np.ndarray, np.ndarray], source: Read, load_address: int) -> UnnamedFunctions:
    """Returns the functions of a file of which some code has no name, counted from `load_address`.

    `named`: where functions with names begin and end (uint64), which do not overlap, by start. Raises OSError.
    """
    if load_address >= MAX_OFFSET:  # a kernel
        return UnnamedFunctions(np.empty(0, np.uint32), np.empty(0, np.uint32))
    start, end = _functions(source)
    covered = _covered(named, end) - _covered(named, start)
    kept = (covered < end - start) & (start >= load_address) & (end <= load_address + LIMIT)
    start, end = start[kept], end[kept]
    return UnnamedFunctions((start - load_address).astype(np.uint32), (end - start).astype(np.uint32))


def _functions(source: Read) -> tuple[np.ndarray, np.ndarray]:
    """Returns where the functions with call frame information begin, ascending, and end: int64."""
    try:
        file = code_file.parse(source, MAX_BYTES)
        records = _records(file)
    except ElfError:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    area = address_ranges.find(file.code[:, 0], file.code[:, 1], records.start)
    start, length, limit = records.start[area >= 0], records.length[area >= 0], file.code[area[area >= 0], 1]
    order = np.lexsort((length, start))
    start, end = start[order], (start + np.minimum(length, limit - start))[order]
    following = np.append(start[1:], file.code[-1, 1])
    end = np.minimum(end, following)
    return start[end > start], end[end > start]


def _records(file: CodeFile) -> Fdes:
    """The linker's search table finds them in half of the time that it takes to read one after the other, and without
    section headers."""
    section, table = eh_frame.by_name(file), eh_frame.search_table(file)
    # The program headers of a separate debug file describe bytes that it does not have.
    if table is not None and (section is not None or not file.sections):
        listed = eh_frame.listed(section or eh_frame.by_table(file, table), table)
        if len(listed.start):
            return listed
    if section is None:
        raise ElfError("the file has no call frame information")
    return cfi_records.read(section)


def _covered(named: tuple[np.ndarray, np.ndarray], addresses: np.ndarray) -> np.ndarray:
    """Returns how many bytes below each address have names: int64."""
    if not len(named[0]):
        return np.zeros(len(addresses), np.int64)
    start, end = (np.minimum(bound, np.uint64(MAX_OFFSET)).astype(np.int64) for bound in named)
    below = np.concatenate(([0], np.cumsum(end - start)))
    row = np.searchsorted(start, addresses, side="right")
    last = np.maximum(row - 1, 0)
    result: np.ndarray = below[row] - np.where(row > 0, np.maximum(end[last] - addresses, 0), 0)
    return result
