"""The table of a graph's functions or modules: flat (in itself) and cumulative (with what it called)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from api.array_types import Rows, Values
from api.tree.distinct import distinct_numbers
from api.tree.graph import Graph
from api.tree.levels import depth_first_intervals, stable_order


@dataclass(frozen=True)
class TopTable:
    """One row for each group of nodes, in any order."""

    groups: npt.NDArray[np.int64]  # (n,)
    flat: Values  # (sides, n)
    cumulative: Values  # (sides, n)

    def without(self, groups: npt.ArrayLike) -> "TopTable":
        """The rows of all other groups."""
        keep = ~np.isin(self.groups, groups)
        return TopTable(self.groups[keep], self.flat[:, keep], self.cumulative[:, keep])


def top_table(graph: Graph, group: npt.NDArray[np.integer], root: int = 0) -> TopTable:
    """Sums over `group` (a number for each node of the graph) of the nodes below `root`, with itself.

    Recursion counts once: of a group's nodes on one stack, only the outermost adds to the cumulative sum.
    """
    first, end = depth_first_intervals(graph.parent)
    self_values, total_values = graph.self_values, graph.total_values
    if root:
        rows = np.flatnonzero((first >= first[root]) & (first < end[root]))
        first, end, group = first[rows] - first[root], end[rows] - first[root], group[rows]
        self_values, total_values = self_values[:, rows], total_values[:, rows]
    groups, index = distinct_numbers(group)
    flat, cumulative = np.zeros((2, len(self_values), len(groups)), np.int64)
    outermost = np.flatnonzero(~_is_below_same_group(first, end, index))
    for side in range(len(flat)):
        np.add.at(flat[side], index, self_values[side])
        np.add.at(cumulative[side], index[outermost], total_values[side, outermost])
    return TopTable(groups, flat, cumulative)


def _is_below_same_group(first: Rows, end: Rows, group: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Whether a node (n,) has a node of its group above it. `first` (0 to n - 1) and `end` are as of
    `depth_first_intervals`.

    In depth-first order, the descendants of a node are the interval after it, and two intervals are nested or disjoint.
    So within a group, in that order, a node is below another if an interval that began before it has not ended.
    """
    order = np.empty(len(first), np.int32)
    order[first] = np.arange(len(first), dtype=np.int32)
    in_order = group[order]
    by_group = stable_order(in_order)
    order = order[by_group]
    # Each group gets its own range of numbers, so that one running maximum serves all groups.
    base = in_order[by_group].astype(np.int64) * (len(first) + 1)
    latest_end = np.maximum.accumulate(base + end[order])
    is_below = np.zeros(len(first), bool)
    is_below[order[1:]] = (base + first[order])[1:] < latest_end[:-1]
    return is_below
