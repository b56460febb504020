"""What the Go runtime knows about its module: runtime.moduledata, which stripped programs have as well.

Format: Go's src/runtime/symtab.go (moduledata), whose begin is the same in Go 1.20 to 1.26. It has a section of its own
as of Go 1.26. In older programs it is found by its first words, which are addresses in the table of functions. In
position-independent programs that a C linker made, these words may be in the relocations only.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from collector.elf.gopclntab import GO_1_20, GoTable
from collector.elf.reader import Read
from collector.elf.sections import Section, at, content, find

MAX_BYTES = 64 << 20
"""A larger section is not searched, and of more relocations none is applied."""
MAX_DATA_BYTES = 64 << 20
"""The most data of functions that are read."""

_SECTIONS = ".go.module", ".noptrdata", ".data"
_FIRST_FUNCTION, _TEXT, _FUNCTION_DATA = 20, 22, 40  # the words minpc, text, gofunc
_WORDS = _FUNCTION_DATA + 1
_RELATIVE = 8  # R_X86_64_RELATIVE without a symbol


class GoModule(NamedTuple):
    """ELF virtual addresses: what functions count from, and what their FUNCDATA offsets count from."""

    text: int
    function_data: int


def find_module(source: Read, sections: Sequence[Section], table: GoTable, address: int) -> GoModule | None:
    """Returns the module of the table of functions at `address`; None if it is not found or Go is older than 1.20.
    Raises OSError."""
    if table.magic != GO_1_20 or not len(table.start):
        return None
    parts = {0: 0, 1: table.names, 4: table.units, 7: table.files, 10: table.steps}
    first = {word: address + offset for word, offset in parts.items()}
    for name in _SECTIONS:
        words = _words(source, sections, find(sections, name))
        rows = len(words) - _WORDS + 1
        if rows <= 0:
            continue
        same = np.logical_and.reduce([words[word : word + rows] == address for word, address in first.items()])
        for row in np.flatnonzero(same)[:1].tolist():
            begin, text, data = (int(words[row + word]) for word in (_FIRST_FUNCTION, _TEXT, _FUNCTION_DATA))
            return GoModule(text, data) if begin - text == table.start[0] else None
    return None


def function_data(source: Read, sections: Sequence[Section], module: GoModule | None) -> bytes:
    """Returns the bytes that the functions' FUNCDATA offsets count from, up to the end of the section; b"" if there are
    none. Raises OSError."""
    return at(source, sections, module.function_data, MAX_DATA_BYTES) if module is not None else b""


def _words(source: Read, sections: Sequence[Section], section: Section | None) -> np.ndarray:
    """The words (uint64) of a section, as the dynamic linker leaves them in a program that is loaded at 0."""
    data = content(source, section, MAX_BYTES)
    words = np.frombuffer(data, "<u8", len(data) // 8)
    table = content(source, find(sections, ".rela.dyn"), MAX_BYTES)
    if section is None or not table:
        return words
    place, kind, value = np.frombuffer(table, "<u8", len(table) // 24 * 3).reshape(-1, 3).T
    offset = place - np.uint64(section.address)  # wraps around below the section
    inside = (kind == _RELATIVE) & (offset < 8 * len(words)) & (offset % 8 == 0)
    words = words.copy()
    words[offset[inside] // 8] = value[inside]
    return words
