"""Ranges of rows, given by their counts: n ranges that lie one after the other, or anywhere in a column.

All arguments are integer arrays of shape (n,), where nothing else is said; all results but sums are int64.
"""

import numpy as np


def starts(counts: np.ndarray) -> np.ndarray:
    """Returns where each range starts (n,) if the ranges lie one after the other."""
    counts = counts.astype(np.int64)
    result: np.ndarray = np.cumsum(counts) - counts
    return result


def owners(counts: np.ndarray) -> np.ndarray:
    """Returns for each row of ranges that lie one after the other the index of its range (sum of counts,)."""
    return np.repeat(np.arange(len(counts)), counts.astype(np.int64))


def positions(counts: np.ndarray) -> np.ndarray:
    """Returns for each row of ranges that lie one after the other how far it is from its range's start."""
    return expand(np.zeros(len(counts), np.int64), counts)


def sums(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns the sum of the values of each range, 0 of an empty one, if all ranges lie one after the other (n,)."""
    found = np.zeros(len(counts), values.dtype)
    some = np.flatnonzero(counts)
    if len(some):
        found[some] = np.add.reduceat(values, starts(counts)[some])
    return found


def expand(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns the rows of all ranges [first, first + count), one range after the other (sum of counts,)."""
    counts = counts.astype(np.int64)
    shift: np.ndarray = np.repeat(first.astype(np.int64) - starts(counts), counts)
    return shift + np.arange(len(shift))


def rows_of(ranges: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns the rows of some ranges (their indices, of any number), one range after the other, if all ranges lie one
    after the other."""
    return expand(starts(counts)[ranges], counts[ranges])
