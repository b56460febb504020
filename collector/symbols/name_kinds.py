"""How good the names of a file are. The better kind has the higher number: it is the version of a SymbolFile."""

NOTHING = 0
DYNAMIC = 1
"""What the file exports."""
SYMBOL_TABLE = 2
"""All functions: .symtab, or MiniDebugInfo and what is exported."""
LINE_TABLE = 3
"""All functions, their files and lines: what Go leaves in stripped programs."""
DEBUG_INFO = 4
"""Functions, files, lines, and what was inlined."""

IN_WORDS = {
    NOTHING: "no names",
    DYNAMIC: "exported functions only",
    SYMBOL_TABLE: "symbol table",
    LINE_TABLE: "Go's function table",
    DEBUG_INFO: "debug information",
}
