"""The table of a graph's functions or modules: flat (in itself) and cumulative (with what it called)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from api.array_types import Values
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
    rows = np.flatnonzero((first >= first[root]) & (first < end[root]))
    groups, index = distinct_numbers(group[rows])
    flat, cumulative = np.zeros((2, len(graph.self_values), len(groups)), np.int64)
    outermost = ~_is_below_same_group(first[rows] - first[root], end[rows] - first[root], index)
    for side in range(len(flat)):
        np.add.at(flat[side], index, graph.self_values[side, rows])
        np.add.at(cumulative[side], index[outermost], graph.total_values[side, rows[outermost]])
    return TopTable(groups, flat, cumulative)


def _is_below_same_group(
    first: npt.NDArray[np.int64], end: npt.NDArray[np.int64], group: npt.NDArray[np.intp]
) -> npt.NDArray[np.bool_]:
    """Whether a node (n,) has a node of its group above it. `first` (0 to n - 1) and `end` are as of
    `depth_first_intervals`.

    In depth-first order, the descendants of a node are the interval after it, and two intervals are nested or disjoint.
    So within a group, in that order, a node is below another if an interval that began before it has not ended.
    """
    order = np.empty(len(first), np.intp)
    order[first] = np.arange(len(first))
    order = order[stable_order(group[order])]
    span = int(end.max(initial=0)) + 1
    # Each group gets its own range of numbers, so that one running maximum serves all groups.
    ends = (group[order] * span + end[order]).astype(np.int64)
    starts = (group[order] * span + first[order]).astype(np.int64)
    latest_end = np.maximum.accumulate(np.concatenate([[-1], ends[:-1]]))
    is_below = np.zeros(len(first), bool)
    is_below[order] = starts < latest_end
    return is_below
