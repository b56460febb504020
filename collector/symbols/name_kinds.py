"""Kinds of names that a file has. The better kind has the higher number: the version of the SymbolFile of a host."""

from icestream.symbols.unnamed import STARTS_VERSION

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
UPLOADED = 8
"""Is added to the version of what was uploaded. So it replaces the names that hosts send: a host may have a file with a
forged build ID."""

IN_WORDS = {
    NOTHING: "no names",
    STARTS: "starts of functions only",
    DYNAMIC: "exported functions only",
    SYMBOL_TABLE: "symbol table",
    LINE_TABLE: "Go's function table",
    DEBUG_INFO: "debug information",
}
