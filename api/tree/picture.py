"""The part of a graph that is worth drawing: what is below one node, without what is too narrow to be seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from api.array_types import Rows, Values
from api.tree.distinct import distinct_numbers
from api.tree.functions import CUT
from api.tree.graph import Graph, sibling_weight
from api.tree.levels import depth_first_intervals, level_bounds

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

    Below `root`, it keeps the `max_nodes` heaviest; and with `width`, the pixels that `root` is drawn with, only those
    that can be seen. `scales` has a factor for each side's values: a node's weight is the sum of both.
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
    drawn, row_of_kept, cut_values = _cut(graph, parent, keep)
    return Picture(drawn, int(row_of_kept[np.count_nonzero(keep[:root])]), int((~keep).sum()), cut_values)


def _is_below(graph: Graph, root: int) -> npt.NDArray[np.bool_]:
    if root == 0:
        return np.ones(len(graph.parent), bool)
    first, end = depth_first_intervals(graph.parent)
    is_below: npt.NDArray[np.bool_] = (first >= first[root]) & (first < end[root])
    return is_below


def _cut(graph: Graph, parent: Rows, keep: npt.NDArray[np.bool_]) -> tuple[Graph, Rows, Values]:
    """Returns the nodes to keep, with a child `[cut]` where nodes were cut; the row in them of each node that is kept;
    and the value that was cut.

    A `[cut]` has no children, so what is kept stays in its order, and each `[cut]` is inserted among its siblings.
    """
    kept = np.flatnonzero(keep)
    number = np.cumsum(keep, dtype=np.int32) - np.int32(1)  # row of a kept node -> number of it
    topmost = np.flatnonzero(~keep & keep[parent])
    parents, stub_of_topmost = distinct_numbers(number[parent[topmost]])
    stubs = np.zeros((len(graph.self_values), len(parents)), np.int64)
    for side_stubs, side_total in zip(stubs, graph.total_values[:, topmost], strict=True):
        np.add.at(side_stubs, stub_of_topmost, side_total)
    above = number[parent[kept]]  # ascending, but for the root
    place = _places(above, sibling_weight(graph.total_values[:, kept]), parents, sibling_weight(stubs))
    row_of_kept = np.arange(len(kept), dtype=np.int32)
    row_of_kept += np.searchsorted(place, row_of_kept, side="right").astype(np.int32)

    def with_stubs(values: Rows, of_stubs: npt.ArrayLike) -> Rows:
        return np.insert(values, place, of_stubs)

    def sums(values: Values) -> Values:
        return np.stack([with_stubs(*side) for side in zip(values[:, kept], stubs, strict=True)])

    drawn_parent = row_of_kept[with_stubs(above, parents)]
    drawn_parent[0] = -1
    drawn = Graph(
        drawn_parent, with_stubs(graph.function[kept], CUT), sums(graph.self_values), sums(graph.total_values)
    )
    return drawn, row_of_kept, stubs.sum(axis=1)


def _places(above: Rows, weight: Values, parents: npt.NDArray[np.int64], stub_weight: Values) -> npt.NDArray[np.intp]:
    """The rows before which the stubs below `parents` are inserted: behind all siblings that are at least as heavy.
    `above`: the parent of each row."""
    stub_of_parent = np.full(len(above), -1, np.int32)
    stub_of_parent[parents] = np.arange(len(parents), dtype=np.int32)
    sibling = stub_of_parent[above]  # the stub beside a row
    sibling[0] = -1  # nothing is beside the root
    before = sibling[(sibling >= 0) & (weight >= stub_weight[sibling])]
    first: npt.NDArray[np.intp] = 1 + np.searchsorted(above[1:], parents.astype(above.dtype))
    return first + np.bincount(before, minlength=len(parents))
