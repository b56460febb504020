"""Content IDs: mappings, locations, nodes, stacks, series (specification: schemas/ids.md).

Scalars are Python ints, columns are numpy arrays of uint64.
"""

import struct
from collections.abc import Iterable

import numpy as np
import xxhash

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xFF51AFD7ED558CCD)
_MIX2 = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)

_NAMED = struct.pack("<I", 5) + b"named"


def combine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns id(combine(a, b)) of the specification for two columns, whose shapes broadcast."""
    hashed = _fmix64(_fmix64(np.asarray(a, np.uint64) + _GOLDEN) ^ np.asarray(b, np.uint64))
    hashed[hashed == 0] = 1
    return hashed


def mapping_id(build_id: str, file: str) -> int:
    """Returns the ID of a mapping: from its build ID, else from its file's path. An unknown mapping has neither."""
    return xxhash.xxh3_64_intdigest(_text("mapping", build_id or (f"file:{file}" if file else "")))


def named_ids(functions: Iterable[str], files: Iterable[str]) -> np.ndarray:
    """Returns the hashes that the IDs of locations with these names are combined from, each with its line: uint64 (n,).

    Of one function and one file each.
    """
    # Written out, because streams hash every name that comes with a batch.
    digests = [
        xxhash.xxh3_64_digest(
            b"".join((_NAMED, len(first).to_bytes(4, "little"), first, len(second).to_bytes(4, "little"), second))
        )
        for first, second in zip(map(str.encode, functions), map(str.encode, files), strict=True)
    ]
    return np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)


def series_id(labels: Iterable[tuple[str, str]]) -> int:
    """Returns the ID of a set of labels, given in any order. Labels with empty values do not count."""
    pairs = sorted((name.encode(), value.encode()) for name, value in labels if value)
    return xxhash.xxh3_64_intdigest(_text("series", *(part for pair in pairs for part in pair))) or 1


def _fmix64(x: np.ndarray) -> np.ndarray:
    x = x ^ (x >> _SHIFT)
    x *= _MIX1
    x ^= x >> _SHIFT
    x *= _MIX2
    x ^= x >> _SHIFT
    return x


def _text(*strings: str | bytes) -> bytes:
    encoded = [s.encode() if isinstance(s, str) else s for s in strings]
    return b"".join(struct.pack("<I", len(s)) + s for s in encoded)
