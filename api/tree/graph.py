"""A flame graph as columns: what a query summed up over the tree of functions."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from api.tree.functions import CUT
from api.tree.hash_index import Rows

Values = npt.NDArray[np.int64]
Depths = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Tree:
    """The tree of functions that values are summed up over; row 0 is the root, every row comes after its parent."""

    parent: Rows
    function: Rows
    depth: Depths


@dataclass(frozen=True)
class Graph:
    """n nodes in level order: row 0 is the root, children of one node lie next to each other, heaviest first.

    It has one side, or two in a diff (0: the profile, 1: its baseline).
    """

    parent: Rows  # (n,), -1 for the root
    function: Rows  # (n,), rows of Functions
    own: Values  # (sides, n), without the children
    total: Values  # (sides, n)
    cut_nodes: int  # how many nodes are not here
    cut: Values  # (sides,), their value, which their parents' children `[cut]` have


def build(tree: Tree, leaves: Rows, values: Values, max_nodes: int | None = None) -> Graph:
    """Sums up `values` (sides, m) of `leaves` (m rows of the tree).

    With `max_nodes`, only the heaviest are kept; what is cut below a node becomes one child of it, `[cut]`.
    """
    nodes = _sum_up(tree, leaves, values)
    every = len(nodes.parent)
    if max_nodes is not None and every > max_nodes:
        keep = _heaviest(nodes, max_nodes)
        nodes, cut = _cut(nodes, keep)
        return _in_level_order(nodes, every - int(keep.sum()), cut)
    return _in_level_order(nodes, 0, np.zeros(len(values), np.int64))


def level_bounds(parent: Rows) -> list[int]:
    """Where the levels of a graph begin, and its length at the end: level i is bounds[i] to bounds[i + 1]."""
    bounds = [0, 1]
    while bounds[-1] < len(parent):
        bounds.append(int(np.searchsorted(parent, bounds[-1])))
    return bounds


def intervals(parent: Rows) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Of nodes in level order: the depth-first number of each, and the one behind the last node below it."""
    levels = list(pairwise(level_bounds(parent)[1:]))
    size = np.ones(len(parent), np.int64)
    for start, stop in reversed(levels):
        np.add.at(size, parent[start:stop], size[start:stop])
    first = np.zeros(len(parent), np.int64)
    for start, stop in levels:
        above = parent[start:stop]
        before = np.cumsum(size[start:stop]) - size[start:stop]
        leading = np.searchsorted(above, above)  # the first sibling
        first[start:stop] = first[above] + 1 + before - before[leading]
    return first, first + size


def rows_above(leaves: Rows, parent: Rows, seen: npt.NDArray[np.bool_]) -> Rows:
    """`leaves` and all rows above them in ascending order, without those seen (and what is above these)."""
    done = seen.copy()
    stamp = np.empty(len(parent), np.int32)
    level = leaves
    while len(level):
        level = level[~done[level]]
        # Each row once (np.unique sorts, which takes ten times as long): of equal rows, the last one's stamp stays.
        numbers = np.arange(len(level), dtype=np.int32)
        stamp[level] = numbers
        level = level[stamp[level] == numbers]
        done[level] = True
        level = parent[level]
    marked = done & ~seen
    return np.flatnonzero(marked).astype(np.int32)


def by_depth(depth: Depths) -> npt.NDArray[np.intp]:
    """A stable order by depth. (numpy sorts 16 bits in linear time.)"""
    small = int(depth.max(initial=0)) < 2**16
    return np.argsort(depth.astype(np.uint16) if small else depth, kind="stable")


@dataclass(frozen=True)
class _Nodes:
    """As Graph, but ordered by depth only; the root's parent is itself."""

    parent: Rows
    function: Rows
    depth: Depths
    own: Values
    total: Values

    @property
    def weight(self) -> Values:
        weight: Values = np.abs(self.total).max(axis=0)
        return weight


def _sum_up(tree: Tree, leaves: Rows, values: Values) -> _Nodes:
    seen = np.zeros(len(tree.parent), bool)
    seen[0] = True
    rows = np.concatenate([np.zeros(1, np.int32), rows_above(leaves, tree.parent, seen)])
    rows = rows[by_depth(tree.depth[rows])]
    depth = tree.depth[rows]
    place = np.zeros(len(tree.parent), np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    parent = place[tree.parent[rows]]
    own = np.zeros((len(values), len(rows)), np.int64)
    for side, side_values in enumerate(values):
        np.add.at(own[side], place[leaves], side_values)
    total = own.copy()
    for start, end in reversed(_levels(depth)[1:]):
        for side_total in total:
            np.add.at(side_total, parent[start:end], side_total[start:end])
    return _Nodes(parent, tree.function[rows], depth, own, total)


def _heaviest(nodes: _Nodes, max_nodes: int) -> npt.NDArray[np.bool_]:
    keep = np.zeros(len(nodes.parent), bool)
    keep[np.argpartition(-nodes.weight, max_nodes - 1)[:max_nodes]] = True
    keep[0] = True
    for start, end in _levels(nodes.depth)[1:]:
        keep[start:end] &= keep[nodes.parent[start:end]]
    return keep


def _cut(nodes: _Nodes, keep: npt.NDArray[np.bool_]) -> tuple[_Nodes, Values]:
    """The nodes kept and a child `[cut]` where something was cut; and the value that was cut."""
    topmost = ~keep & keep[nodes.parent]
    above, child_of = np.unique(nodes.parent[topmost], return_inverse=True)
    stubs = np.zeros((len(nodes.own), len(above)), np.int64)
    for side_stubs, side_total in zip(stubs, nodes.total[:, topmost], strict=True):
        np.add.at(side_stubs, child_of, side_total)
    place = (np.cumsum(keep) - 1).astype(np.int32)
    depth = np.concatenate([nodes.depth[keep], nodes.depth[above] + 1]).astype(np.int32)
    order = by_depth(depth)
    moved = np.empty(len(order), np.int32)
    moved[order] = np.arange(len(order), dtype=np.int32)
    joined = _Nodes(
        moved[np.concatenate([place[nodes.parent[keep]], place[above]])][order],
        np.concatenate([nodes.function[keep], np.full(len(above), CUT, np.int32)])[order],
        depth[order],
        np.concatenate([nodes.own[:, keep], stubs], axis=1)[:, order],
        np.concatenate([nodes.total[:, keep], stubs], axis=1)[:, order],
    )
    return joined, stubs.sum(axis=1)


def _in_level_order(nodes: _Nodes, cut_nodes: int, cut: Values) -> Graph:
    weight = nodes.weight
    order = np.zeros(len(nodes.parent), np.int32)  # new row -> row of `nodes`
    place = np.zeros(len(nodes.parent), np.int32)  # and back
    for start, end in _levels(nodes.depth):
        level = np.arange(start, end, dtype=np.int32)
        level = level[np.lexsort((-weight[start:end], place[nodes.parent[start:end]]))]
        order[start:end] = level
        place[level] = np.arange(start, end, dtype=np.int32)
    parent = place[nodes.parent[order]]
    parent[0] = -1
    return Graph(parent, nodes.function[order], nodes.own[:, order], nodes.total[:, order], cut_nodes, cut)


def _levels(depth: Depths) -> list[tuple[int, int]]:
    """Start and end of each run of one depth, ascending."""
    starts = np.flatnonzero(np.diff(depth, prepend=np.int32(-1))).tolist()
    return list(zip(starts, [*starts[1:], len(depth)], strict=True))
