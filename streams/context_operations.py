"""The operations of trace contexts, as intervals tell them."""

import numpy as np

from icestream import sorted_keys
from streams.attach import Intervals

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIXED = (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB))


def operations(contexts: np.ndarray, intervals: Intervals) -> np.ndarray:
    """Returns the operation of each context, object (c,), str: that of its interval that started last, of those with
    one; "" where there is none.

    `contexts`: uint8 (c, 24).
    """
    if not len(contexts):
        return np.empty(0, object)
    wanted, of_context = np.unique(_hashes(contexts), return_inverse=True)
    row = sorted_keys.find(wanted, _hashes(intervals.contexts))
    told = np.flatnonzero(row >= 0)
    told = told[intervals.operation[told] != ""]
    told = told[np.argsort(intervals.start_monotonic_ns[told], kind="stable")]
    found = np.full(len(wanted), "", object)
    found[row[told]] = intervals.operation[told]  # of several, numpy leaves the last one
    return found[of_context]


def _hashes(contexts: np.ndarray) -> np.ndarray:
    """One number for each context, uint64 (n,): splitmix64's mixer over its words. Sorting the bytes takes longer than
    all else here."""
    hashes = np.zeros(len(contexts), np.uint64)
    for word in np.ascontiguousarray(contexts).view(np.uint64).T:
        hashes = (hashes ^ word) + _GOLDEN
        for shift, factor in _MIXED:
            hashes = (hashes ^ (hashes >> shift)) * factor
        hashes ^= hashes >> np.uint64(31)
    return hashes
