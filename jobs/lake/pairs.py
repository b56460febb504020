"""A set of pairs of a text and a number, such as the batches that a job recomputed, asked for whole columns at once."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from icestream.columns import sorted_keys

_BITS = np.uint64(34)


class Pairs:
    """Numbers are from 0 to 2^34 - 1: sequence numbers, seconds since 1970."""

    def __init__(self, pairs: Iterable[tuple[str, int]]) -> None:
        self._texts: dict[str, int] = {}
        keys = [self._texts.setdefault(text, len(self._texts)) << int(_BITS) | number for text, number in pairs]
        self._keys = sorted_keys.distinct(np.array(keys, np.uint64))

    def __len__(self) -> int:
        return len(self._keys)

    def has(self, texts: pa.ChunkedArray, numbers: np.ndarray) -> np.ndarray:
        """Returns whether each pair, of n texts and n integers, is in the set: bool (n,)."""
        encoded = texts.combine_chunks().dictionary_encode()
        values = encoded.dictionary.to_pylist()
        number_of = np.array([self._texts.get(value, -1) for value in values] or [-1], np.int64)
        text = number_of[encoded.indices.fill_null(0).to_numpy()]
        keys = text.astype(np.uint64) << _BITS | numbers.astype(np.uint64)
        found: np.ndarray = (sorted_keys.find(self._keys, keys) >= 0) & (text >= 0)
        return found
