"""A flame graph as columns: the values of a query, summed up over the tree of functions."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from api.array_types import Depths, Rows, Values
from api.tree.levels import levels, stable_order
from api.tree.row_sums import levels_of_all, row_sums, used_rows


@dataclass(frozen=True)
class Tree:
    """The tree of functions that values are summed up over. Row 0 is the root, every row comes after its parent."""

    parent: Rows
    function: Rows
    depth: Depths
    repeats: npt.NDArray[np.int8] | None = None
    """Whether a row's function is above it, too: 1 or 0, and -1 where it is not known yet: the first reader that finds
    out stores it here."""


@dataclass(frozen=True)
class Graph:
    """n nodes in level order: row 0 is the root, children of one node are neighbours, the heaviest first.

    It has one side, or two in a diff (0: the profile, 1: its baseline).
    """

    parent: Rows  # (n,), -1 for the root
    function: Rows  # (n,), rows of FrameFunctions
    self_values: Values  # (sides, n), without the children
    total_values: Values  # (sides, n)
    tree_row: Rows | None = None  # (n,), of the tree that it was built of


@dataclass(frozen=True)
class GraphNodes:
    """As Graph, but ordered by depth only. The root's parent is itself."""

    parent: Rows
    function: Rows
    depth: Depths
    self_values: Values
    total_values: Values


def build_graph(tree: Tree, leaves: Rows, values: Values) -> Graph:
    """Sums up `values` (sides, m) of `leaves` (m rows of the tree)."""
    return to_graph(*sum_up(tree, leaves, values))


def to_graph(nodes: GraphNodes, rows: Rows) -> Graph:
    """`rows`: the row in the tree of each node."""
    graph, new_row = in_level_order(nodes)
    tree_row = np.empty_like(rows)
    tree_row[new_row] = rows
    return replace(graph, tree_row=tree_row)


def sum_up(tree: Tree, leaves: Rows, values: Values) -> tuple[GraphNodes, Rows]:
    """Sums up `values` (sides, m) of `leaves` (m rows of the tree). Returns also the row in the tree of each node."""
    rows = used_rows(tree.parent, levels_of_all(tree.depth, leaves), leaves)
    rows = rows[stable_order(tree.depth[rows])]
    depth = tree.depth[rows]
    new_row = np.zeros(len(tree.parent), np.int32)
    new_row[rows] = np.arange(len(rows), dtype=np.int32)
    parent = new_row[tree.parent[rows]]
    self_values, total_values = row_sums(parent, levels(depth), new_row[leaves], values)
    return GraphNodes(parent, tree.function[rows], depth, self_values, total_values), rows


def in_level_order(nodes: GraphNodes) -> tuple[Graph, Rows]:
    """Returns the graph, and the row in it of each of `nodes`."""
    weight = sibling_weight(nodes.total_values)
    order = np.zeros(len(nodes.parent), np.int32)  # new row -> row of `nodes`
    new_row = np.zeros(len(nodes.parent), np.int32)  # row of `nodes` -> new row
    for (above, start), (_, end) in pairwise(levels(nodes.depth)):
        parents = new_row[nodes.parent[start:end]] - above
        new_row[start:end] = start + _positions(parents, start - above, weight[start:end])
        order[new_row[start:end]] = np.arange(start, end, dtype=np.int32)
    parent = new_row[nodes.parent[order]]
    parent[0] = -1
    return Graph(parent, nodes.function[order], nodes.self_values[:, order], nodes.total_values[:, order]), new_row


def sibling_weight(total_values: Values) -> Values:
    """What siblings are ordered by, of nodes with these values (sides, n)."""
    weight: Values = np.abs(total_values).max(axis=0)
    return weight


def _positions(parents: Rows, parent_count: int, weight: Values) -> npt.NDArray[np.intp]:
    """The places of nodes in the order of their parents, of siblings the heaviest first. It sorts only those that have
    siblings, which most have not."""
    children = np.bincount(parents, minlength=parent_count)
    places: npt.NDArray[np.intp] = (np.cumsum(children) - children)[parents]
    siblings = np.flatnonzero(children[parents] > 1)
    siblings = siblings[np.argsort(-weight[siblings], kind="stable")]
    siblings = siblings[stable_order(parents[siblings])]
    places[siblings] = np.flatnonzero(np.repeat(children > 1, children))
    return places
