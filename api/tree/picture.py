"""The part of a graph that is worth drawing: what is below one node, without what is too narrow to be seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from api.array_types import Depths, Rows, Values
from api.tree.functions import CUT
from api.tree.graph import Graph, Nodes, in_level_order
from api.tree.levels import depth_first_intervals, level_bounds, stable_order

_NARROWEST = 0.5
"""Pixels: a narrower node cannot be seen."""


@dataclass(frozen=True)
class Picture:
    """What is left out below a node is one child `[cut]` of it, so all sums are kept."""

    graph: Graph
    root: int  # row of `graph`: the node that is as wide as the picture
    cut_nodes: int  # how many nodes were left out
    cut_values: Values  # (sides,), the value of these, which `[cut]` nodes carry


def make_picture(graph: Graph, max_nodes: int, width: int | None, root: int, scales: Sequence[float]) -> Picture:
    """Keeps the nodes below `root` and on the path to it.

    Of those below, it keeps the `max_nodes` heaviest; and with `width`, the pixels that `root` is drawn with, only
    those that can be seen. `scales` has a factor for each side's values: a node's weight is the sum of both.
    """
    weight = np.asarray(scales) @ np.abs(graph.total_values)
    bounds = list(pairwise(level_bounds(graph.parent)))
    parent = graph.parent.copy()
    parent[0] = 0
    keep = _is_below(graph, root)
    if width is not None:
        keep &= weight >= weight[root] * _NARROWEST / width
    if int(keep.sum()) > max_nodes:
        rows = np.flatnonzero(keep)
        keep[rows[np.argpartition(-weight[rows], max_nodes - 1)[max_nodes:]]] = False
    row = root
    keep[0] = True
    while row > 0:
        keep[row] = True
        row = int(parent[row])
    for start, end in bounds[1:]:
        keep[start:end] &= keep[parent[start:end]]
    if keep.all():
        return Picture(graph, root, 0, np.zeros(len(graph.self_values), np.int64))
    depth = np.repeat(np.arange(len(bounds), dtype=np.int32), [end - start for start, end in bounds])
    nodes, new_row, cut_values = _cut(graph, parent, depth, keep)
    drawn, row_of_node = in_level_order(nodes)
    return Picture(drawn, int(row_of_node[new_row[root]]), int((~keep).sum()), cut_values)


def _is_below(graph: Graph, root: int) -> npt.NDArray[np.bool_]:
    if root == 0:
        return np.ones(len(graph.parent), bool)
    first, end = depth_first_intervals(graph.parent)
    is_below: npt.NDArray[np.bool_] = (first >= first[root]) & (first < end[root])
    return is_below


def _cut(graph: Graph, parent: Rows, depth: Depths, keep: npt.NDArray[np.bool_]) -> tuple[Nodes, Rows, Values]:
    """Returns the nodes to keep, with a child `[cut]` where nodes were cut; the row in them of each node of the graph
    that is kept; and the value that was cut.
    """
    topmost = ~keep & keep[parent]
    parents, stub_of_topmost = np.unique(parent[topmost], return_inverse=True)
    stubs = np.zeros((len(graph.self_values), len(parents)), np.int64)
    for side_stubs, side_total in zip(stubs, graph.total_values[:, topmost], strict=True):
        np.add.at(side_stubs, stub_of_topmost, side_total)
    all_depths = np.concatenate([depth[keep], depth[parents] + 1]).astype(np.int32)
    order = stable_order(all_depths)
    new_row = np.empty(len(order), np.int32)  # row of kept nodes and stubs -> row in the result
    new_row[order] = np.arange(len(order), dtype=np.int32)
    row_of_node = np.full(len(keep), -1, np.int32)
    row_of_node[keep] = new_row[: len(order) - len(parents)]
    nodes = Nodes(
        row_of_node[np.concatenate([parent[keep], parents])][order],
        np.concatenate([graph.function[keep], np.full(len(parents), CUT, np.int32)])[order],
        all_depths[order],
        np.concatenate([graph.self_values[:, keep], stubs], axis=1)[:, order],
        np.concatenate([graph.total_values[:, keep], stubs], axis=1)[:, order],
    )
    return nodes, row_of_node, stubs.sum(axis=1)
