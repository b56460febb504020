"""Adds ends to the symbols in a SymCache that have none, so that an address behind a symbol stays unnamed.

A SymCache made of a file with debug information also holds the file's symbols. There a symbol without a size (`_init`,
assembly) reaches up to the next one, over the PLT for example, and the last one has no end. Format: symbolic-symcache
of github.com/getsentry/symbolic, version 9; other versions are left as they are.
"""

import struct
from collections.abc import Sequence

import numpy as np

from collector.symbols.code_ranges import Range
from icestream import address_ranges

VERSION = 9

_NONE = 2**32 - 1
_HEADER = struct.Struct("<4sI 32x 6I 16x")  # magic, version, then arch and counts
_COUNTS = struct.Struct("<2I")
_LOCATIONS_AT = 8 + 32 + 12  # of the number of source locations, then the number of ranges
_FILE_BYTES, _FUNCTION_BYTES = 24, 16
_LOCATION = np.dtype([("file", "<u4"), ("line", "<u4"), ("function", "<u4"), ("inlined_into", "<u4")])
_NOWHERE = np.array((_NONE,) * 4, _LOCATION)


def with_ends(symcache: bytes, symbols: Sequence[Range], base: int) -> bytes:
    """Returns the SymCache with an end behind every symbol. `symbols`: the ranges of the symbol table, sorted, in ELF
    virtual addresses; the SymCache's addresses count from `base`."""
    if len(symcache) < _HEADER.size or not symbols:
        return symcache
    magic, version, _, files, functions, locations, ranges, _ = _HEADER.unpack_from(symcache)
    if magic != b"SYMC" or version != VERSION or not ranges <= locations:
        return symcache
    functions_at = _aligned(_HEADER.size + files * _FILE_BYTES)
    locations_at = _aligned(functions_at + functions * _FUNCTION_BYTES)
    ranges_at = _aligned(locations_at + locations * _LOCATION.itemsize)
    strings_at = _aligned(ranges_at + ranges * 4)
    if strings_at > len(symcache):
        return symcache
    where = np.frombuffer(symcache, _LOCATION, locations, locations_at)
    starts = np.frombuffer(symcache, "<u4", ranges, ranges_at)
    languages = np.frombuffer(symcache, "<u4", functions * 4, functions_at).reshape(-1, 4)[:, 3]
    called = locations - ranges  # the locations that others are inlined into come first
    ends = _missing_ends(starts, _from_symbols(where[called:], languages), symbols, base)
    at = np.flatnonzero(ends) + 1
    where = np.insert(where, called + at, _NOWHERE)
    starts = np.insert(starts, at, ends[ends > 0])
    head = bytearray(symcache[:locations_at])
    _COUNTS.pack_into(head, _LOCATIONS_AT, len(where), len(starts))
    body = bytes(head) + where.tobytes() + starts.astype("<u4").tobytes()
    return body.ljust(_aligned(len(body)), b"\0") + symcache[strings_at:]


def _from_symbols(where: np.ndarray, languages: np.ndarray) -> np.ndarray:
    """Returns which ranges a symbol names (bool): debug information always has a language."""
    known = where["function"] < len(languages)
    language = languages[np.where(known, where["function"], 0)] if len(languages) else where["function"]
    by_symbol: np.ndarray = known & (where["file"] == _NONE) & (language == _NONE)
    return by_symbol


def _missing_ends(starts: np.ndarray, symbol: np.ndarray, symbols: Sequence[Range], base: int) -> np.ndarray:
    """Returns for each range the end to insert behind it (int64); 0 if it ends where the next one begins."""
    begin = np.array([symbol_range.start for symbol_range in symbols], np.uint64) - np.uint64(base)
    end = np.array([symbol_range.end for symbol_range in symbols], np.uint64) - np.uint64(base)
    row = address_ranges.find(begin, end, starts.astype(np.uint64))
    following = np.append(starts[1:].astype(np.uint64), np.uint64(_NONE))
    return np.where(symbol & (row >= 0) & (end[row] < following), end[row], 0).astype(np.int64)


def _aligned(size: int) -> int:
    return size + 7 & ~7
