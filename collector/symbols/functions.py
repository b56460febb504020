"""The functions of an ELF file by its symbol tables: where each begins and ends, and its name.

Sizes are those of the symbols. A symbol without a size (hand-written assembly) ends at the next symbol, at the next
function that has unwinding information, or at the end of its section.
"""

from collections.abc import Sequence

import numpy as np

from collector.elf import eh_frame_hdr, symbols
from collector.elf.reader import Read
from collector.elf.sections import DYNSYM, SYMTAB, Section, content, find, read_sections
from collector.elf.symbols import GLOBAL, MAX_TABLE_BYTES, WEAK, Functions, read_functions
from collector.symbols.code_ranges import Range, disjoint
from icestream import address_ranges, sorted_keys

Ranked = tuple[bool, int, int, str]
"""A name, after what makes it better than others; the least is the best."""


def functions(*sources: Read) -> list[Range]:
    """Returns the functions in the symbol tables of all `sources` as ranges that do not overlap. Raises OSError.

    The sources are files of the same code; what one lacks, sections or unwinding information, another may have.
    """
    sections = [read_sections(source) for source in sources]
    code = _code(sections)
    if not len(code):
        return []
    tables = [_table(source, rows) for source, rows in zip(sources, sections, strict=True)]
    begins = np.concatenate([_unwind_starts(source, rows) for source, rows in zip(sources, sections, strict=True)])
    return _ranges([table for table in tables if table is not None], code, sorted_keys.distinct(begins))


def _table(source: Read, sections: Sequence[Section]) -> Functions | None:
    """The larger table: .symtab has all that .dynsym has."""
    return read_functions(source, sections, SYMTAB) or read_functions(source, sections, DYNSYM)


def _code(files: list[list[Section]]) -> np.ndarray:
    """(n, 2) uint64: begin and end of the sections with code, sorted."""
    areas = {(s.address, s.end) for sections in files for s in sections if s.executable and 0 < s.end < 2**64}
    return np.array(sorted(areas), np.uint64).reshape(-1, 2)


def _ranges(tables: list[Functions], code: np.ndarray, begins: np.ndarray) -> list[Range]:
    starts = np.concatenate([table.start for table in tables] or [np.empty(0, np.uint64)])
    sizes = np.concatenate([table.size for table in tables] or [np.empty(0, np.uint64)])
    area = address_ranges.find(code[:, 0], code[:, 1], starts)
    inside = area >= 0
    limits = code[area, 1]
    nearest = np.minimum(_next(starts, sorted_keys.distinct(starts), limits), _next(starts, begins, limits))
    # A size that does not fit would wrap around.
    ends = np.where(sizes > 0, starts + np.minimum(sizes, limits - starts), nearest)
    names = [(table, *row) for table in tables for row in zip(table.name.tolist(), table.binding.tolist(), strict=True)]
    best: dict[tuple[int, bool], tuple[Ranked, int]] = {}
    for i in np.flatnonzero(inside).tolist():
        table, offset, binding = names[i]
        if not (name := symbols.name(table.names, offset)):
            continue
        key = int(starts[i]), bool(sizes[i])
        rank = _rank(name, binding)
        if key not in best or rank < best[key][0]:
            best[key] = rank, int(ends[i])
    return list(disjoint(_sized_first(best)))


def _sized_first(best: dict[tuple[int, bool], tuple[Ranked, int]]) -> list[Range]:
    """Ranges by start, without the symbols that have no size and lie in one that has. `best`: (start, whether it has a
    size) -> (name, end)."""
    ranges: list[Range] = []
    covered = 0
    for (start, sized), (rank, end) in sorted(best.items(), key=lambda item: (item[0][0], not item[0][1])):
        if sized or start >= covered:
            ranges.append(Range(start, end, rank[-1]))
        if sized:
            covered = max(covered, end)
    return ranges


def _next(starts: np.ndarray, among: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """The first of `among` (sorted) that is greater than each start, at most its limit."""
    if not len(among):
        return limits
    row = np.searchsorted(among, starts, side="right")
    following: np.ndarray = np.where(row < len(among), among[np.minimum(row, len(among) - 1)], limits)
    nearest: np.ndarray = np.minimum(following, limits)
    return nearest


def _rank(name: str, binding: int) -> Ranked:
    """Public names come before local ones, `write` and `malloc` before `__write` and `__libc_malloc`."""
    is_local = binding not in (GLOBAL, WEAK)
    return is_local, len(name) - len(name.lstrip("_")), len(name), name


def _unwind_starts(source: Read, sections: list[Section]) -> np.ndarray:
    """The addresses (uint64) of functions with unwinding information."""
    section = find(sections, ".eh_frame_hdr")
    data = content(source, section, MAX_TABLE_BYTES)
    table = eh_frame_hdr.read_table(data, section.address) if section is not None else None
    return table.function.view(np.uint64) if table is not None else np.empty(0, np.uint64)
