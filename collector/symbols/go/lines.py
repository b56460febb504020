"""Functions, files, lines and inlined calls of stripped Go programs, by the table that the Go runtime keeps for its
stack traces.

Go older than 1.20 has another table of inlined calls, which is not read: there, inlined code counts for the function
around it, at the line before it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from collector.elf import go_module, gopclntab
from collector.elf.go_module import GoModule
from collector.elf.gopclntab import GoTable, text
from collector.elf.reader import Read
from collector.elf.sections import Section, content, find, read_sections
from collector.symbols import symcache_writer
from collector.symbols.function_starts import unnamed_functions
from collector.symbols.go.functions import GoFunctions, read_functions
from collector.symbols.go.ranges import GoRanges, Places, read_ranges
from collector.symbols.symcache_layout import LOCATION, NONE
from collector.symbols.symcache_writer import Content
from icestream.symbols.unnamed_functions import with_unnamed

MAX_BYTES = 256 << 20


class _GoProgram(NamedTuple):
    table: GoTable
    module: GoModule | None
    start: int  # the address that functions count from
    size: int  # bytes of code from there


def has_go_table(source: Read, sections: Sequence[Section]) -> bool:
    """Whether a file has a table that names its code. Raises OSError."""
    return _find(source, sections) is not None


def go_symcache(source: Read, base: int) -> bytes:
    """Returns the SymCache of a Go program, and where its C functions begin, which have no name; addresses count from
    `base`. b"" if there is no table, it cannot be read, or it is not certain what its addresses count from. Raises
    OSError."""
    sections = read_sections(source)
    program = _find(source, sections)
    if program is None or program.start < base:
        return b""
    data = go_module.function_data(source, sections, program.module)
    begin = program.start - base
    functions = read_functions(program.table, min(program.size, NONE - 1 - begin), bool(data))
    if not len(functions.start):
        return b""
    ranges = read_ranges(program.table, functions, data)
    symcache = symcache_writer.write(_content(program.table, functions, ranges, begin))
    bounds = (program.start + int(functions.start[0]), program.start + int(functions.end[-1]))
    go_code = (np.array(bounds[:1], np.uint64), np.array(bounds[1:], np.uint64))
    return with_unnamed(symcache, unnamed_functions(go_code, source, base))


def _find(source: Read, sections: Sequence[Section]) -> _GoProgram | None:
    section, code = gopclntab.find_table(source, sections), find(sections, ".text")
    table = gopclntab.read_table(content(source, section, MAX_BYTES))
    if section is None or table is None or code is None:
        return None
    module = go_module.find_module(source, sections, table, section.address)
    for start in (table.text_start, module.text if module is not None else 0):
        if code.address <= start < code.end:
            return _GoProgram(table, module, start, code.end - start)
    return None


def _content(table: GoTable, functions: GoFunctions, ranges: GoRanges, start: int) -> Content:
    """`start`: what the functions' addresses count from, in the SymCache."""
    inlined, files = _distinct(ranges.code.name, ranges.calls.name), _distinct(ranges.code.file, ranges.calls.file)
    numbers = [*functions.name.tolist(), *inlined.tolist()]
    names = [text(table.data, table.names + name).encode("utf-8", "replace") for name in numbers]
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
