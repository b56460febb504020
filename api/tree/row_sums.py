"""Sums over rows of a tree, whose rows come after their parents. A level (`levels`) has neighbours of one depth: none
of them is above another."""

import numpy as np

from api.array_types import Depths, Rows, Values
from api.tree.levels import levels, rows_above

Levels = list[tuple[int, int]]
_SHARE = 8
_MOST_LEVELS = 1000


def levels_of_all(depth: Depths, leaves: Rows) -> Levels | None:
    """The levels of a tree, if it takes less to go through all of its rows than from `leaves` up.

    None: leaves are few, or the tree has grown in many steps, so that it has many small levels.
    """
    if len(leaves) * _SHARE < len(depth):
        return None
    found = levels(depth)
    return found if len(found) <= _MOST_LEVELS else None


def used_rows(parent: Rows, of_all: Levels | None, leaves: Rows) -> Rows:
    """The root, `leaves`, and all rows above them, in ascending order."""
    used = np.zeros(len(parent), bool)
    used[0] = True
    if of_all is None:
        return np.concatenate([np.zeros(1, np.int32), rows_above(leaves, parent, used)])
    used[leaves] = True
    for start, end in reversed(of_all[1:]):
        used[parent[start:end][used[start:end]]] = True
    return np.flatnonzero(used).astype(np.int32)


def row_sums(parent: Rows, of_rows: Levels, leaves: Rows, values: Values) -> tuple[Values, Values]:
    """Sums up `values` (sides, m) of `leaves` (m rows): of each row without those below it, and with them."""
    self_values = np.zeros((len(values), len(parent)), np.int64)
    for side, side_values in zip(self_values, values, strict=True):
        np.add.at(side, leaves, side_values)
    total_values = self_values.copy()
    for start, end in reversed(of_rows[1:]):
        for side in total_values:
            np.add.at(side, parent[start:end], side[start:end].copy())  # of an overlapping array, numpy copies all
    return self_values, total_values
