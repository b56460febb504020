"""Small operations on columns that refer to rows of tables."""

import numpy as np


def used(rows: np.ndarray, count: int, always: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows among `rows` of a table of `count`, in order, and `always`; and `rows` counted in these."""
    flags = np.zeros(max(count, 1), bool)
    flags[rows] = True
    if always is not None:
        flags[always] = True
    return np.flatnonzero(flags), (np.cumsum(flags) - 1)[rows]


def take(data: bytes, width: int, rows: np.ndarray) -> bytes:
    """Some rows of a table whose rows are `width` bytes each."""
    chosen: np.ndarray = np.frombuffer(data, np.uint8).reshape(-1, width)[rows]
    return chosen.tobytes()
