"""Functions, files, lines and inlined calls of stripped Go programs, by the table that the Go runtime keeps for its
stack traces.

Go older than 1.20 has another table of inlined calls, which is not read: there, inlined code counts for the function
around it, at the line before it.
"""

import struct
from collections.abc import Sequence

import numpy as np

from collector.elf import go_module, gopclntab
from collector.elf.gopclntab import GoTable, text
from collector.elf.reader import Read
from collector.elf.sections import Section, content, find, read_sections
from collector.symbols import symcache_writer
from collector.symbols.go.functions import GoFunctions, read_functions
from collector.symbols.go.ranges import GoRanges, Places, read_ranges
from collector.symbols.symcache_layout import LOCATION, NONE
from collector.symbols.symcache_writer import Content

MAX_BYTES = 256 << 20

_FUNCTION = struct.Struct("<Ii")  # entry, name


def has_go_table(source: Read, sections: Sequence[Section]) -> bool:
    """Whether a file has a table that names its code. Raises OSError."""
    return _find(source, sections) is not None


def go_symcache(source: Read, base: int) -> bytes:
    """Returns the SymCache of a Go program, with addresses that count from `base`; b"" if there is no table, it cannot
    be read, or it is not certain what its addresses count from. Raises OSError."""
    sections = read_sections(source)
    go_program = _find(source, sections)
    if go_program is None or go_program[1] < base:
        return b""
    table, start, size = go_program
    data = go_module.function_data(source, sections, table)
    functions = read_functions(table, min(size, NONE - 1 - (start - base)), bool(data))
    if not len(functions.start):
        return b""
    return symcache_writer.write(_content(table, functions, read_ranges(table, functions, data), start - base))


def _find(source: Read, sections: Sequence[Section]) -> tuple[GoTable, int, int] | None:
    """The table, what its addresses count from, and the bytes of code from there."""
    table = gopclntab.read_table(content(source, gopclntab.section(sections), MAX_BYTES))
    code = find(sections, ".text")
    if table is None or code is None:
        return None
    try:
        start = _text_start(table, code, int.from_bytes(source(24, 8), "little"))
    except struct.error:
        return None
    return None if start is None else (table, start, code.end - start)


def _text_start(table: GoTable, code: Section, entry: int) -> int | None:
    """What addresses count from. Up to Go 1.25 the table says it. Later it is the begin of .text unless C code was
    linked before it, so the program's entry must be where the table has it."""
    if code.address <= table.text_start < code.end:
        return table.text_start
    if not 0 <= entry - code.address < 1 << 32:
        return None
    for row in np.flatnonzero(table.start == entry - code.address)[:1].tolist():
        _, name = _FUNCTION.unpack_from(table.data, int(table.record[row]))
        return code.address if text(table.data, table.names + name).startswith("_rt0_") else None
    return None


def _content(table: GoTable, functions: GoFunctions, ranges: GoRanges, start: int) -> Content:
    """`start`: what the functions' addresses count from, in the SymCache."""
    inlined, files = _distinct(ranges.code.name, ranges.calls.name), _distinct(ranges.code.file, ranges.calls.file)
    names = [text(table.data, table.names + name) for name in [*functions.name.tolist(), *inlined.tolist()]]
    paths = [text(table.data, table.files + file) for file in files.tolist()]
    entries = np.append(functions.start + start, np.full(len(inlined), NONE))
    begins = ranges.at + functions.start[ranges.code.row]
    ends = functions.end[functions.end != np.append(functions.start[1:], -1)]
    begins, places = np.append(begins, ends), _locations(ranges.code, inlined, files, len(functions.start))
    places = np.append(places, np.full(len(ends), NONE, LOCATION))
    order = np.argsort(begins, kind="stable")
    calls = _locations(ranges.calls, inlined, files, len(functions.start))
    return Content(names, entries, paths, calls, places[order], begins[order] + start)


def _distinct(*columns: np.ndarray) -> np.ndarray:
    """The numbers in columns that are not negative."""
    numbers = np.unique(np.concatenate(columns))
    return numbers[numbers >= 0]


def _locations(places: Places, inlined: np.ndarray, files: np.ndarray, functions: int) -> np.ndarray:
    locations = np.empty(len(places.row), LOCATION)
    locations["file"] = np.where(places.file >= 0, np.searchsorted(files, places.file), NONE)
    locations["line"] = places.line
    own = places.name < 0
    locations["function"] = np.where(own, places.row, functions + np.searchsorted(inlined, places.name))
    locations["inlined_into"] = np.where(places.call >= 0, places.call, NONE)
    return locations
