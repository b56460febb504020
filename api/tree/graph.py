"""A flame graph as columns: the values of a query, summed up over the tree of functions."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from api.array_types import Depths, Rows, Values
from api.tree.functions import CUT
from api.tree.levels import levels, order_by_depth, rows_above


@dataclass(frozen=True)
class Tree:
    """The tree of functions that values are summed up over. Row 0 is the root, every row comes after its parent."""

    parent: Rows
    function: Rows
    depth: Depths


@dataclass(frozen=True)
class Graph:
    """n nodes in level order: row 0 is the root, children of one node are neighbours, the heaviest first.

    It has one side, or two in a diff (0: the profile, 1: its baseline).
    """

    parent: Rows  # (n,), -1 for the root
    function: Rows  # (n,), rows of FrameFunctions
    self_values: Values  # (sides, n), without the children
    total_values: Values  # (sides, n)
    cut_nodes: int  # how many nodes were left out
    cut_values: Values  # (sides,), the value of these, which `[cut]` nodes carry


def build_graph(tree: Tree, leaves: Rows, values: Values, max_nodes: int | None = None) -> Graph:
    """Sums up `values` (sides, m) of `leaves` (m rows of the tree).

    With `max_nodes`, only the heaviest nodes are kept; those cut below one node become one child `[cut]` of it.
    """
    nodes = _sum_up(tree, leaves, values)
    count = len(nodes.parent)
    if max_nodes is not None and count > max_nodes:
        keep = _heaviest(nodes, max_nodes)
        nodes, cut_values = _cut(nodes, keep)
        return _in_level_order(nodes, count - int(keep.sum()), cut_values)
    return _in_level_order(nodes, 0, np.zeros(len(values), np.int64))


@dataclass(frozen=True)
class _Nodes:
    """As Graph, but ordered by depth only. The root's parent is itself."""

    parent: Rows
    function: Rows
    depth: Depths
    self_values: Values
    total_values: Values

    @property
    def weight(self) -> Values:
        weight: Values = np.abs(self.total_values).max(axis=0)
        return weight


def _sum_up(tree: Tree, leaves: Rows, values: Values) -> _Nodes:
    is_root = np.zeros(len(tree.parent), bool)
    is_root[0] = True
    rows = np.concatenate([np.zeros(1, np.int32), rows_above(leaves, tree.parent, is_root)])
    rows = rows[order_by_depth(tree.depth[rows])]
    depth = tree.depth[rows]
    new_row = np.zeros(len(tree.parent), np.int32)
    new_row[rows] = np.arange(len(rows), dtype=np.int32)
    parent = new_row[tree.parent[rows]]
    self_values = np.zeros((len(values), len(rows)), np.int64)
    for side, side_values in zip(self_values, values, strict=True):
        np.add.at(side, new_row[leaves], side_values)
    total_values = self_values.copy()
    for start, end in reversed(levels(depth)[1:]):
        for side in total_values:
            np.add.at(side, parent[start:end], side[start:end])
    return _Nodes(parent, tree.function[rows], depth, self_values, total_values)


def _heaviest(nodes: _Nodes, max_nodes: int) -> npt.NDArray[np.bool_]:
    """Whether to keep a node: it and all nodes above it are among the heaviest."""
    keep = np.zeros(len(nodes.parent), bool)
    keep[np.argpartition(-nodes.weight, max_nodes - 1)[:max_nodes]] = True
    keep[0] = True
    for start, end in levels(nodes.depth)[1:]:
        keep[start:end] &= keep[nodes.parent[start:end]]
    return keep


def _cut(nodes: _Nodes, keep: npt.NDArray[np.bool_]) -> tuple[_Nodes, Values]:
    """Returns the nodes to keep, with a child `[cut]` where nodes were cut; and the value that was cut."""
    topmost = ~keep & keep[nodes.parent]
    parents, stub_of_topmost = np.unique(nodes.parent[topmost], return_inverse=True)
    stubs = np.zeros((len(nodes.self_values), len(parents)), np.int64)
    for side_stubs, side_total in zip(stubs, nodes.total_values[:, topmost], strict=True):
        np.add.at(side_stubs, stub_of_topmost, side_total)
    row_of_kept = (np.cumsum(keep) - 1).astype(np.int32)
    depth = np.concatenate([nodes.depth[keep], nodes.depth[parents] + 1]).astype(np.int32)
    order = order_by_depth(depth)
    new_row = np.empty(len(order), np.int32)
    new_row[order] = np.arange(len(order), dtype=np.int32)
    joined = _Nodes(
        new_row[np.concatenate([row_of_kept[nodes.parent[keep]], row_of_kept[parents]])][order],
        np.concatenate([nodes.function[keep], np.full(len(parents), CUT, np.int32)])[order],
        depth[order],
        np.concatenate([nodes.self_values[:, keep], stubs], axis=1)[:, order],
        np.concatenate([nodes.total_values[:, keep], stubs], axis=1)[:, order],
    )
    return joined, stubs.sum(axis=1)


def _in_level_order(nodes: _Nodes, cut_nodes: int, cut_values: Values) -> Graph:
    weight = nodes.weight
    order = np.zeros(len(nodes.parent), np.int32)  # new row -> row of `nodes`
    new_row = np.zeros(len(nodes.parent), np.int32)  # row of `nodes` -> new row
    for start, end in levels(nodes.depth):
        level = np.arange(start, end, dtype=np.int32)
        level = level[np.lexsort((-weight[start:end], new_row[nodes.parent[start:end]]))]
        order[start:end] = level
        new_row[level] = np.arange(start, end, dtype=np.int32)
    parent = new_row[nodes.parent[order]]
    parent[0] = -1
    return Graph(
        parent, nodes.function[order], nodes.self_values[:, order], nodes.total_values[:, order], cut_nodes, cut_values
    )
