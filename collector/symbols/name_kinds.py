"""Kinds of names that a file has. The better kind has the higher number, which is the version of a SymbolFile."""

NOTHING = 0
DYNAMIC = 1
"""Exported functions."""
SYMBOL_TABLE = 2
"""All functions: .symtab, or MiniDebugInfo and the exported functions."""
LINE_TABLE = 3
"""All functions, their files and lines: the Go runtime's table, which stripped programs have as well."""
DEBUG_INFO = 4
"""Functions, files, lines and inlined functions (DWARF)."""

IN_WORDS = {
    NOTHING: "no names",
    DYNAMIC: "exported functions only",
    SYMBOL_TABLE: "symbol table",
    LINE_TABLE: "Go's function table",
    DEBUG_INFO: "debug information",
}
