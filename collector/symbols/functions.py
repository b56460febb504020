"""The functions of an ELF file by its symbol tables: where each begins and ends, and its name.

There may be millions, so they are columns. Sizes are those of the symbols. A symbol without a size (hand-written
assembly) ends at the next symbol, at the next function that has unwinding information, or at the end of its section.
"""

from collections.abc import Sequence

import numpy as np

from collector.elf import eh_frame_hdr, symbols
from collector.elf.reader import Read
from collector.elf.sections import DYNSYM, SYMTAB, Section, content, find, read_sections
from collector.elf.symbols import GLOBAL, MAX_TABLE_BYTES, WEAK, ElfFunctions, read_functions
from collector.processes.areas import paint
from collector.symbols.code_ranges import CodeRanges
from icestream.columns import address_ranges, sorted_keys


def functions(*sources: Read) -> CodeRanges:
    """Returns the functions in the symbol tables of all `sources`. Where they overlap, an address belongs to the one
    that begins last. Raises OSError.

    The sources are files of the same code; what one lacks, sections or unwinding information, another may have.
    """
    sections = [read_sections(source) for source in sources]
    code = _code(sections)
    tables = [_table(source, rows) for source, rows in zip(sources, sections, strict=True)]
    begins = np.concatenate([_unwind_starts(source, rows) for source, rows in zip(sources, sections, strict=True)])
    return _ranges([table for table in tables if table is not None], code, sorted_keys.distinct(begins))


def _table(source: Read, sections: Sequence[Section]) -> ElfFunctions | None:
    """The larger table: .symtab has all that .dynsym has."""
    return read_functions(source, sections, SYMTAB) or read_functions(source, sections, DYNSYM)


def _code(files: list[list[Section]]) -> np.ndarray:
    """(n, 2) uint64: begin and end of the sections with code, sorted."""
    areas = {(s.address, s.end) for sections in files for s in sections if s.executable and 0 < s.end < 2**64}
    return np.array(sorted(areas), np.uint64).reshape(-1, 2)


def _ranges(tables: list[ElfFunctions], code: np.ndarray, begins: np.ndarray) -> CodeRanges:
    names = b"".join(table.names for table in tables)
    base = np.cumsum([0, *(len(table.names) for table in tables)])
    start = np.concatenate([np.empty(0, np.uint64), *(table.start for table in tables)])
    size = np.concatenate([np.empty(0, np.uint64), *(table.size for table in tables)])
    binding = np.concatenate([np.empty(0, np.uint8), *(table.binding for table in tables)])
    offset = np.concatenate(
        [np.empty(0, np.int64), *(table.name.astype(np.int64) + at for table, at in zip(tables, base, strict=False))]
    )
    length, underscores = symbols.measure(names, offset)
    area = address_ranges.find(code[:, 0], code[:, 1], start)
    limit = code[area, 1] if len(code) else start
    nearest = np.minimum(_next(start, sorted_keys.distinct(start), limit), _next(start, begins, limit))
    # A size that does not fit would wrap around.
    end = np.where(size > 0, start + np.minimum(size, limit - start), nearest)
    unsized = size == 0
    # Public names come before local ones, `write` and `malloc` before `__write` and `__libc_malloc`.
    is_local = ~np.isin(binding, (GLOBAL, WEAK))
    usable = np.flatnonzero((area >= 0) & (length > 0))
    keys = [length[usable], underscores[usable], is_local[usable], unsized[usable], start[usable]]
    order = np.lexsort(keys)
    best = usable[order[_best([key[order] for key in keys], names, offset[usable[order]])]]
    # A symbol that has no size and lies in one that has is no function.
    covered = np.maximum.accumulate(np.where(unsized[best], 0, end[best])) if len(best) else end[best]
    best = best[~unsized[best] | (start[best] >= covered)]
    best = best[end[best] > start[best]]
    painted = paint(start[best], end[best], np.arange(len(best), dtype=np.uint32))
    return CodeRanges(painted.start, painted.end, painted.value.astype(np.int64), offset[best], length[best], names)


def _best(keys: list[np.ndarray], names: bytes, offset: np.ndarray) -> np.ndarray:
    """Returns the row of the best name of each place. The rows are sorted by `keys`, the last two of which are the
    place; of names that are equally good by all of them, the first one in the alphabet is the best."""
    same_place = np.logical_and.reduce([key[1:] == key[:-1] for key in keys[-2:]])
    as_good = np.logical_and.reduce([key[1:] == key[:-1] for key in keys])
    first = np.flatnonzero(np.append(True, ~same_place)[: len(offset)])
    best = first.copy()
    for number in np.flatnonzero(np.append(as_good, False)[first]).tolist():
        row = last = int(first[number])
        while last < len(as_good) and as_good[last]:
            last += 1
        length = int(keys[0][row])
        best[number] = min(range(row, last + 1), key=lambda row: names[offset[row] : offset[row] + length])
    return best


def _next(starts: np.ndarray, among: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """The first of `among` (sorted) that is greater than each start, at most its limit."""
    if not len(among):
        return limits
    row = np.searchsorted(among, starts, side="right")
    following: np.ndarray = np.where(row < len(among), among[np.minimum(row, len(among) - 1)], limits)
    nearest: np.ndarray = np.minimum(following, limits)
    return nearest


def _unwind_starts(source: Read, sections: list[Section]) -> np.ndarray:
    """The addresses (uint64) of functions with unwinding information."""
    section = find(sections, ".eh_frame_hdr")
    data = content(source, section, MAX_TABLE_BYTES)
    table = eh_frame_hdr.read_table(data, section.address) if section is not None else None
    return table.function.view(np.uint64) if table is not None else np.empty(0, np.uint64)
