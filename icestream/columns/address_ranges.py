"""Ranges of addresses that do not overlap, as two ascending arrays: where each starts, and where it ends."""

import numpy as np


def find(start: np.ndarray, end: np.ndarray, addresses: np.ndarray) -> np.ndarray:
    """Returns for each address the row (int64) of the range [start, end) that covers it; -1 if none does.

    `start`, `end` and `addresses` have the same dtype.
    """
    if not len(start):
        return np.full(len(addresses), -1, np.int64)
    row = np.searchsorted(start, addresses, side="right") - 1
    return np.where((row >= 0) & (addresses < end[row]), row, -1)
