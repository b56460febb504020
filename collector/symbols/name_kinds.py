"""Kinds of names that a file has. The better kind has the higher number, which is the version of a SymbolFile."""

from icestream.unnamed import STARTS_VERSION

NOTHING = 0
STARTS = STARTS_VERSION
"""No names, but where functions begin: the call frame information."""
DYNAMIC = 2
"""Exported functions."""
SYMBOL_TABLE = 3
"""All functions: .symtab, or MiniDebugInfo and the exported functions."""
LINE_TABLE = 4
"""All functions, their files and lines: the Go runtime's table, which stripped programs have as well."""
DEBUG_INFO = 5
"""Functions, files, lines and inlined functions (DWARF)."""

IN_WORDS = {
    NOTHING: "no names",
    STARTS: "starts of functions only",
    DYNAMIC: "exported functions only",
    SYMBOL_TABLE: "symbol table",
    LINE_TABLE: "Go's function table",
    DEBUG_INFO: "debug information",
}
