"""Where a Go program has the data of its functions: runtime.moduledata says it, and stripped programs have that too.

Format: Go's src/runtime/symtab.go (moduledata), whose begin is the same in Go 1.20 to 1.26. It has a section of its own
as of Go 1.26. In older programs it is found by its first words, which are addresses in the table of functions.
"""

from collections.abc import Sequence

import numpy as np

from collector.elf import gopclntab
from collector.elf.gopclntab import GO_1_20, GoTable
from collector.elf.reader import Read
from collector.elf.sections import Section, at, content, find

MAX_BYTES = 64 << 20
"""A larger section is not searched."""
MAX_DATA_BYTES = 64 << 20
"""Of the functions' data that are read."""

_SECTIONS = ".go.module", ".noptrdata", ".data"
_FUNCTION_DATA = 40  # the word gofunc
_WORDS = _FUNCTION_DATA + 1


def function_data(source: Read, sections: Sequence[Section], table: GoTable) -> bytes:
    """Returns the bytes that the functions' FUNCDATA offsets count from, up to the end of the section; b"" if they are
    not found or Go is older than 1.20. Raises OSError."""
    own = gopclntab.section(sections)
    if own is None or table.magic != GO_1_20:
        return b""
    parts = {0: 0, 1: table.names, 4: table.units, 7: table.files, 10: table.steps}
    first = {word: own.address + offset for word, offset in parts.items()}
    for name in _SECTIONS:
        data = content(source, find(sections, name), MAX_BYTES)
        words = np.frombuffer(data, "<u8", len(data) // 8)
        rows = len(words) - _WORDS + 1
        if rows <= 0:
            continue
        same = np.logical_and.reduce([words[word : word + rows] == address for word, address in first.items()])
        for row in np.flatnonzero(same)[:1].tolist():
            return at(source, sections, int(words[row + _FUNCTION_DATA]), MAX_DATA_BYTES)
    return b""
