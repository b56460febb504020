"""The operations of trace contexts, as intervals tell them."""

import numpy as np

from icestream import ids
from icestream.columns import sorted_keys
from streams.operators.attach import ThreadIntervals


def operations(contexts: np.ndarray, intervals: ThreadIntervals) -> np.ndarray:
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
    """One number for each context, uint64 (n,): to sort their bytes takes longer than all else here."""
    high, low, span = np.ascontiguousarray(contexts).view(np.uint64).T
    return ids.combine(ids.combine(high, low), span)
