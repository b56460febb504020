"""The table of a graph's functions or modules: flat (in itself) and cumulative (with what it called)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from api.array_types import Rows, Values
from api.tree.distinct import distinct_numbers
from api.tree.graph import Graph, Tree, sum_up, to_graph
from api.tree.levels import depth_first_intervals, stable_order
from api.tree.row_sums import levels_of_all, row_sums, used_rows


@dataclass(frozen=True)
class TopTable:
    """One row for each group of nodes, in any order."""

    groups: npt.NDArray[np.int64]  # (n,)
    flat: Values  # (sides, n)
    cumulative: Values  # (sides, n)

    def without(self, groups: npt.ArrayLike) -> "TopTable":
        """The rows of all other groups."""
        return self.where(~np.isin(self.groups, groups))

    def where(self, keep: npt.NDArray[np.bool_]) -> "TopTable":
        """These rows only."""
        return TopTable(self.groups[keep], self.flat[:, keep], self.cumulative[:, keep])


def top_table(graph: Graph, tree: Tree, root: int = 0) -> TopTable:
    """Sums over the functions of the nodes below `root`, with itself. `tree`: what the graph was built of.

    Recursion counts once: of a function's nodes on one stack, only the outermost adds to the cumulative sum.
    """
    self_values, total_values, function = graph.self_values, graph.total_values, graph.function
    if not root:
        groups, index = distinct_numbers(function)
        repeats = _repeats(graph, tree, index)
    else:
        first, end = depth_first_intervals(graph.parent)
        rows = np.flatnonzero((first >= first[root]) & (first < end[root]))
        self_values, total_values = self_values[:, rows], total_values[:, rows]
        groups, index = distinct_numbers(function[rows])
        repeats = _is_below_same_group(first[rows] - first[root], end[rows] - first[root], index)
    return _summed(groups, index, repeats, self_values, total_values)


def top_table_of(tree: Tree, leaves: Rows, values: Values) -> TopTable:
    """Sums up `values` (sides, m) of `leaves` (m rows of the tree) over all functions."""
    of_all = levels_of_all(tree.depth, leaves)
    if of_all is not None and tree.repeats is not None:
        rows = used_rows(tree.parent, of_all, leaves)
        if tree.repeats[rows].min() >= 0:  # rows that are not used may be unknown, and have no values
            groups, index = distinct_numbers(tree.function)
            table = _summed(groups, index, tree.repeats != 0, *row_sums(tree.parent, of_all, leaves, values))
            used = np.zeros(len(groups), bool)
            used[index[rows]] = True
            return table.where(used)
    nodes, rows = sum_up(tree, leaves, values)
    if tree.repeats is None or tree.repeats[rows].min() < 0:  # recursion can be found out in the order of a graph only
        return top_table(to_graph(nodes, rows), tree)
    return top_table(Graph(nodes.parent, nodes.function, nodes.self_values, nodes.total_values, rows), tree)


def _summed(
    groups: npt.NDArray[np.int64],
    index: npt.NDArray[np.int64],
    repeats: npt.NDArray[np.bool_],
    self_values: Values,
    total_values: Values,
) -> TopTable:
    """`index`: of each row in `groups`; `repeats`: whether a row of its group is above it."""
    flat, cumulative = np.zeros((2, len(self_values), len(groups)), np.int64)
    outermost = np.flatnonzero(~repeats)
    for side in range(len(flat)):
        np.add.at(flat[side], index, self_values[side])
        np.add.at(cumulative[side], index[outermost], total_values[side, outermost])
    return TopTable(groups, flat, cumulative)


def _repeats(graph: Graph, tree: Tree, group: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Whether the function of a node (n,) is above it, too: as it was noted in the tree, or found out and noted."""
    if tree.repeats is None or graph.tree_row is None:
        return _is_below_same_group(*depth_first_intervals(graph.parent), group)
    noted = tree.repeats[graph.tree_row]
    if noted.min() >= 0:
        return noted.view(bool)
    found = _is_below_same_group(*depth_first_intervals(graph.parent), group)
    tree.repeats[graph.tree_row] = found
    return found


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
