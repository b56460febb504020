"""Operations on arrays of row numbers."""

import numpy as np


def renumber(rows: np.ndarray, count: int, always: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The distinct numbers among `rows` (and `always`), in order; and `rows` as positions in these. `rows` refer to a
    table of `count` rows."""
    flags = np.zeros(max(count, 1), bool)
    flags[rows] = True
    if always is not None:
        flags[always] = True
    return np.flatnonzero(flags), (np.cumsum(flags) - 1)[rows]


def distinct(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first row of each distinct key, in the order of rows; and for each row the position of its key among
    these."""
    _, first, position = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[position]


def take_rows(data: bytes, width: int, rows: np.ndarray) -> bytes:
    """The bytes of some rows of a table whose rows are `width` bytes each."""
    chosen: np.ndarray = np.frombuffer(data, np.uint8).reshape(-1, width)[rows]
    return chosen.tobytes()
