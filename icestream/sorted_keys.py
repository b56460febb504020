"""A set of keys as one ascending array."""

import numpy as np


def find(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Returns for each wanted key its row (int64) in `keys`, which ascend; -1 if it is not among them."""
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    row = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[row] == wanted, row, -1)
