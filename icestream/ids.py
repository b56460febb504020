"""Content IDs: mappings, locations, nodes, stacks, series (specification: schemas/ids.md).

Scalars are Python ints, columns are numpy arrays of uint64.
"""

import struct
from collections.abc import Iterable, Sequence

import numpy as np
import xxhash

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xFF51AFD7ED558CCD)
_MIX2 = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)
_ONE = np.uint64(1)


def combine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns combine(a, b) of the specification for two columns, whose shapes broadcast."""
    return complete(begin(a), b)


def begin(a: np.ndarray) -> np.ndarray:
    """Returns the part of combine(a, b) that does not depend on b: a caller that combines a number often computes it
    once."""
    return _fmix64(np.asarray(a, np.uint64) + _GOLDEN)


def complete(begun: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns combine(a, b), of what `begin` returned for a."""
    return to_ids(_fmix64(begun ^ np.asarray(b, np.uint64)))


def to_ids(numbers: np.ndarray) -> np.ndarray:
    """Returns id(x) of each number."""
    found: np.ndarray = np.maximum(numbers, _ONE)
    return found


def mapping_id(build_id: str, file: str) -> int:
    """Returns the ID of a mapping, from the build ID and the path of its file; "" if they are not known."""
    return xxhash.xxh3_64_intdigest(_text("mapping", build_id, file))


def text_hashes(texts: Sequence[str]) -> np.ndarray:
    """Returns the hashes of texts, from which those of functions in files are combined: uint64 (n,)."""
    return np.fromiter(map(xxhash.xxh3_64_intdigest, map(str.encode, texts)), np.uint64, len(texts))


def series_id(labels: Iterable[tuple[str, str]]) -> int:
    """Returns the ID of a set of labels, given in any order. Labels with empty values do not count."""
    pairs = sorted((name.encode(), value.encode()) for name, value in labels if value)
    return xxhash.xxh3_64_intdigest(_text("series", *(part for pair in pairs for part in pair))) or 1


def _fmix64(x: np.ndarray) -> np.ndarray:
    """Mixes numbers in place."""
    x ^= x >> _SHIFT
    x *= _MIX1
    x ^= x >> _SHIFT
    x *= _MIX2
    x ^= x >> _SHIFT
    return x


def _text(*strings: str | bytes) -> bytes:
    encoded = [s.encode() if isinstance(s, str) else s for s in strings]
    return b"".join(struct.pack("<I", len(s)) + s for s in encoded)
