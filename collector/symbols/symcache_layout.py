"""Where the parts of a SymCache are. Format: symbolic-symcache of github.com/getsentry/symbolic, version 9."""

import struct
from typing import NamedTuple

import numpy as np

VERSION = 9
NONE = 2**32 - 1
FUNCTION = np.dtype([("name", "<u4"), ("folder", "<u4"), ("start", "<u4"), ("language", "<u4")])
LOCATION = np.dtype([("file", "<u4"), ("line", "<u4"), ("function", "<u4"), ("inlined_into", "<u4")])
FILE = np.dtype([("base", "<u4"), ("folder", "<u4"), ("name", "<u4"), ("rest", "<u4", 3)])
LOCATIONS_COUNT_AT = 8 + 32 + 12
"""Where the header has the number of source locations; that of ranges comes next."""
STRING_BYTES_AT = LOCATIONS_COUNT_AT + 8

HEADER = struct.Struct("<4sI 32x 6I 16x")  # magic, version, then arch and counts


class SymCacheLayout(NamedTuple):
    functions: int
    locations: int
    ranges: int
    string_bytes: int
    functions_at: int
    locations_at: int
    ranges_at: int
    strings_at: int


def read_layout(symcache: bytes) -> SymCacheLayout | None:
    """None: it is none, or of another version."""
    if len(symcache) < HEADER.size:
        return None
    magic, version, _, files, functions, locations, ranges, string_bytes = HEADER.unpack_from(symcache)
    if magic != b"SYMC" or version != VERSION or not ranges <= locations:
        return None
    functions_at = aligned(HEADER.size + files * FILE.itemsize)
    locations_at = aligned(functions_at + functions * FUNCTION.itemsize)
    ranges_at = aligned(locations_at + locations * LOCATION.itemsize)
    strings_at = aligned(ranges_at + ranges * 4)
    if strings_at + string_bytes > len(symcache):
        return None
    return SymCacheLayout(functions, locations, ranges, string_bytes, functions_at, locations_at, ranges_at, strings_at)


def aligned(size: int) -> int:
    return size + 7 & ~7
