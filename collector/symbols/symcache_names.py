"""Gives functions in a SymCache the best names that they have in the symbol table.

symbolic names a function by the first symbol of the table at its lowest address. If there are several, that is a local
one: glibc's `__libc_start_main` became `__libc_start_main_alias_2`. It is also one of a function without bytes:
compilers move the parts of functions that hardly ever run (NAME.cold) before all others, and CPython's interpreter loop
became ast2obj_expr, whose part begins there, too."""

import struct

import numpy as np

from collector.symbols.code_ranges import CodeRanges
from collector.symbols.symcache_layout import FUNCTION, NONE, STRING_BYTES_AT, read_layout
from icestream.columns.packed import varint

_U32 = struct.Struct("<I")


def with_best_names(symcache: bytes, symbols: CodeRanges, base: int) -> bytes:
    """Returns the SymCache with the names that `symbols` have for the lowest addresses of functions.

    `symbols`: the ranges of the symbol table, in ELF virtual addresses; the SymCache's addresses count from `base`.
    """
    layout = read_layout(symcache)
    if layout is None or not len(symbols):
        return symcache
    functions = np.frombuffer(symcache, FUNCTION, layout.functions, layout.functions_at).copy()
    strings = symcache[layout.strings_at : layout.strings_at + layout.string_bytes]
    added = bytearray()
    start = functions["start"].astype(np.uint64) + np.uint64(base)
    symbol = np.minimum(np.searchsorted(symbols.start, start), len(symbols) - 1)
    known = (symbols.start[symbol] == start) & (functions["language"] != NONE)
    for row in np.flatnonzero(known).tolist():
        name, told = symbols.name(int(symbols.function[symbol[row]])), _string(strings, int(functions["name"][row]))
        if told != name:
            functions["name"][row] = len(strings) + len(added)
            added += varint(len(name.encode())) + name.encode()
    head = bytearray(symcache[: layout.functions_at])
    _U32.pack_into(head, STRING_BYTES_AT, len(strings) + len(added))
    body = symcache[layout.functions_at + functions.nbytes : layout.strings_at]
    return bytes(head) + functions.tobytes() + body + strings + added


def _string(strings: bytes, at: int) -> str:
    """Returns the string at an offset: its length as LEB128, then UTF-8. "" if there is none."""
    size = shift = 0
    while at < len(strings):
        byte = strings[at]
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return strings[at : at + size].decode(errors="replace")
    return ""
