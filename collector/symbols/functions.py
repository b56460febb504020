"""Functions of an ELF file by its symbol tables: where each begins and ends, and its name.

Formats: the System V gABI (elf(5)); .eh_frame_hdr as in the Linux Standard Base. Sizes are those of the symbols. One
without a size (hand-written assembly) reaches to the next symbol, but not past its section, nor past the begin of the
next function that has unwinding information.
"""

from typing import NamedTuple

import numpy as np

from collector.elf import Read
from collector.elf_sections import DYNSYM, SYMTAB, Section, content, find, read_sections
from collector.symbols.code_ranges import Range, disjoint
from icestream import address_ranges

MAX_TABLE_BYTES = 256 << 20
MAX_NAME_BYTES = 8192

_SYMBOL_64 = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_SYMBOL_32 = np.dtype(
    [("name", "<u4"), ("value", "<u4"), ("size", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2")]
)
_FUNCTION, _IFUNC = 2, 10
_GLOBAL, _WEAK = 1, 2
_DATA_RELATIVE_4 = 0x3B
_PC_RELATIVE_4 = 0x1B
_UNSIGNED_4 = 3


class Table(NamedTuple):
    """Functions of one symbol table: uint64 starts and sizes, bindings, offsets of names in `names`."""

    start: np.ndarray
    size: np.ndarray
    binding: np.ndarray
    name: np.ndarray
    names: bytes


def functions(*sources: Read) -> list[Range]:
    """What the symbol tables of all `sources` name, as ranges that do not overlap. The sources are files of the same
    code: where one has no sections or unwinding information, those of the others count. Raises OSError."""
    sections = [read_sections(source) for source in sources]
    code = _code(sections)
    if not len(code):
        return []
    tables = [_table(source, rows) for source, rows in zip(sources, sections, strict=True)]
    begins = np.concatenate([_unwind_starts(source, rows) for source, rows in zip(sources, sections, strict=True)])
    return _ranges([table for table in tables if table is not None], code, np.unique(begins))


def has_functions(source: Read, sections: list[Section], kind: int) -> bool:
    """Whether the symbol table of that kind (SYMTAB, DYNSYM) names a function of this file. Raises OSError."""
    table = _read_table(source, sections, kind)
    return table is not None and bool(len(table.start))


def _table(source: Read, sections: list[Section]) -> Table | None:
    """.symtab holds what .dynsym holds, and more."""
    return _read_table(source, sections, SYMTAB) or _read_table(source, sections, DYNSYM)


def _read_table(source: Read, sections: list[Section], kind: int) -> Table | None:
    section = next((section for section in sections if section.kind == kind and section.size), None)
    if section is None or section.link >= len(sections):
        return None
    data = content(source, section, MAX_TABLE_BYTES)
    layout = _SYMBOL_64 if source(4, 1) == b"\x02" else _SYMBOL_32
    rows = np.frombuffer(data, layout, count=len(data) // layout.itemsize)
    rows = rows[np.isin(rows["info"] & 15, (_FUNCTION, _IFUNC)) & (rows["section"] != 0) & (rows["name"] != 0)]
    if not len(rows):
        return None
    names = content(source, sections[section.link], MAX_TABLE_BYTES)
    return Table(
        rows["value"].astype(np.uint64), rows["size"].astype(np.uint64), rows["info"] >> 4, rows["name"], names
    )


def _code(files: list[list[Section]]) -> np.ndarray:
    """(n, 2) uint64: begin and end of the sections with code, sorted."""
    areas = {(s.address, s.end) for sections in files for s in sections if s.executable and 0 < s.end < 2**64}
    return np.array(sorted(areas), np.uint64).reshape(-1, 2)


def _ranges(tables: list[Table], code: np.ndarray, begins: np.ndarray) -> list[Range]:
    starts = np.concatenate([table.start for table in tables] or [np.empty(0, np.uint64)])
    sizes = np.concatenate([table.size for table in tables] or [np.empty(0, np.uint64)])
    area = address_ranges.find(code[:, 0], code[:, 1], starts)
    inside = area >= 0
    limits = code[area, 1]
    nearest = np.minimum(_next(starts, np.unique(starts), limits), _next(starts, begins, limits))
    # A size that does not fit would wrap around.
    ends = np.where(sizes > 0, starts + np.minimum(sizes, limits - starts), nearest)
    names = [(table, *row) for table in tables for row in zip(table.name.tolist(), table.binding.tolist(), strict=True)]
    found: dict[tuple[int, bool], tuple[tuple[int, int, int, str], int]] = {}
    for i in np.flatnonzero(inside).tolist():
        table, at, binding = names[i]
        if not (name := _name(table.names, at)):
            continue
        key = int(starts[i]), bool(sizes[i])
        rank = _rank(name, binding)
        if key not in found or rank < found[key][0]:
            found[key] = rank, int(ends[i])
    return list(disjoint(_sized_first(found)))


def _sized_first(found: dict[tuple[int, bool], tuple[tuple[int, int, int, str], int]]) -> list[Range]:
    """Sorted; symbols without a size are left out where one that has one covers them."""
    ranges: list[Range] = []
    covered = 0
    for (start, sized), (rank, end) in sorted(found.items(), key=lambda item: (item[0][0], not item[0][1])):
        if sized or start >= covered:
            ranges.append(Range(start, end, rank[-1]))
        if sized:
            covered = max(covered, end)
    return ranges


def _next(starts: np.ndarray, among: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """The first of `among` (sorted) that is greater than each start, at most its limit."""
    if not len(among):
        return limits
    at = np.searchsorted(among, starts, side="right")
    following: np.ndarray = np.where(at < len(among), among[np.minimum(at, len(among) - 1)], limits)
    nearest: np.ndarray = np.minimum(following, limits)
    return nearest


def _rank(name: str, binding: int) -> tuple[int, int, int, str]:
    """Of several names of the same code the least is taken: global, then weak, then local; `malloc` before
    `__libc_malloc`."""
    order = {_GLOBAL: 0, _WEAK: 1}.get(binding, 2)
    return order, len(name) - len(name.lstrip("_")), len(name), name


def _name(names: bytes, at: int) -> str:
    end = names.find(b"\0", at, at + MAX_NAME_BYTES)
    name = names[at:end] if end > at else b""
    return name.partition(b"@")[0].decode("utf-8", "replace")  # without the version, as in memcpy@@GLIBC_2.14


def _unwind_starts(source: Read, sections: list[Section]) -> np.ndarray:
    """uint64: where functions with unwinding information begin, by the search table of .eh_frame_hdr."""
    section = find(sections, ".eh_frame_hdr")
    data = content(source, section, MAX_TABLE_BYTES)
    if section is None or len(data) < 12 or data[:4] != bytes((1, _PC_RELATIVE_4, _UNSIGNED_4, _DATA_RELATIVE_4)):
        return np.empty(0, np.uint64)
    count = min(int.from_bytes(data[8:12], "little"), (len(data) - 12) // 8)
    offsets = np.frombuffer(data, "<i4", count=2 * count, offset=12)[::2].astype(np.int64)
    return (offsets.view(np.uint64) + np.uint64(section.address)).astype(np.uint64)
