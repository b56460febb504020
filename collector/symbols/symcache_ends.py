"""Adds ends to the symbols in a SymCache that have none, so that an address behind a symbol stays unnamed.

A SymCache made of a file with debug information also holds the file's symbols. There a symbol without a size (`_init`,
assembly) reaches up to the next one, over the PLT for example, and the last one has no end.
"""

import struct

import numpy as np

from collector.symbols.code_ranges import CodeRanges
from collector.symbols.symcache_layout import FUNCTION, LOCATION, LOCATIONS_COUNT_AT, NONE, aligned, read_layout
from icestream.columns import address_ranges

_COUNTS = struct.Struct("<2I")
_NOWHERE = np.array((NONE,) * 4, LOCATION)


def with_ends(symcache: bytes, symbols: CodeRanges, base: int) -> bytes:
    """Returns the SymCache with an end behind every symbol. `symbols`: the ranges of the symbol table, sorted, in ELF
    virtual addresses; the SymCache's addresses count from `base`."""
    layout = read_layout(symcache)
    if layout is None or not len(symbols):
        return symcache
    where = np.frombuffer(symcache, LOCATION, layout.locations, layout.locations_at)
    starts = np.frombuffer(symcache, "<u4", layout.ranges, layout.ranges_at)
    languages = np.frombuffer(symcache, FUNCTION, layout.functions, layout.functions_at)["language"]
    called = layout.locations - layout.ranges  # the locations that others are inlined into come first
    ends = _missing_ends(starts, _from_symbols(where[called:], languages), symbols, base)
    at = np.flatnonzero(ends) + 1
    where = np.insert(where, called + at, _NOWHERE)
    starts = np.insert(starts, at, ends[ends > 0])
    head = bytearray(symcache[: layout.locations_at])
    _COUNTS.pack_into(head, LOCATIONS_COUNT_AT, len(where), len(starts))
    body = bytes(head) + where.tobytes() + starts.astype("<u4").tobytes()
    return body.ljust(aligned(len(body)), b"\0") + symcache[layout.strings_at :]


def _from_symbols(where: np.ndarray, languages: np.ndarray) -> np.ndarray:
    """Returns which ranges a symbol names (bool): debug information always has a language."""
    known = where["function"] < len(languages)
    language = languages[np.where(known, where["function"], 0)] if len(languages) else where["function"]
    by_symbol: np.ndarray = known & (where["file"] == NONE) & (language == NONE)
    return by_symbol


def _missing_ends(starts: np.ndarray, symbol: np.ndarray, symbols: CodeRanges, base: int) -> np.ndarray:
    """Returns for each range the end to insert behind it (int64); 0 if it ends where the next one begins."""
    begin, end = symbols.start - np.uint64(base), symbols.end - np.uint64(base)
    row = address_ranges.find(begin, end, starts.astype(np.uint64))
    following = np.append(starts[1:].astype(np.uint64), np.uint64(NONE))
    return np.where(symbol & (row >= 0) & (end[row] < following), end[row], 0).astype(np.int64)
