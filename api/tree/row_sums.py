"""Sums over rows of a tree, whose rows come after their parents. `runs` are neighbours of one depth (`levels`): none of
a run is above another."""

import numpy as np

from api.array_types import Depths, Rows, Values
from api.tree.levels import levels

Runs = list[tuple[int, int]]
_SHARE = 8
_MOST_RUNS = 1000


def runs_of_all(depth: Depths, leaves: Rows) -> Runs | None:
    """The runs of a tree, if it takes less to sum up all of its rows than to find first those that `leaves` use.

    None: leaves are few, or the tree has grown in many steps, so that its runs are short.
    """
    if len(leaves) * _SHARE < len(depth):
        return None
    runs = levels(depth)
    return runs if len(runs) <= _MOST_RUNS else None


def used_rows(parent: Rows, runs: Runs, leaves: Rows) -> Rows:
    """The root, `leaves`, and all rows above them, in ascending order."""
    used = np.zeros(len(parent), bool)
    used[0] = True
    used[leaves] = True
    for start, end in reversed(runs[1:]):
        used[parent[start:end][used[start:end]]] = True
    return np.flatnonzero(used).astype(np.int32)


def row_sums(parent: Rows, runs: Runs, leaves: Rows, values: Values) -> tuple[Values, Values]:
    """Sums up `values` (sides, m) of `leaves` (m rows): of each row without those below it, and with them."""
    self_values = np.zeros((len(values), len(parent)), np.int64)
    for side, side_values in zip(self_values, values, strict=True):
        np.add.at(side, leaves, side_values)
    total_values = self_values.copy()
    for start, end in reversed(runs[1:]):
        for side in total_values:
            np.add.at(side, parent[start:end], side[start:end].copy())  # of an overlapping array, numpy copies all
    return self_values, total_values
