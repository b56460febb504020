"""Graphs as Pyroscope's flame graphs (`FlameGraph` and `FlameGraphDiff` in schemas/icestream/pyroscope/querier.proto).

A level has the nodes of one depth from left to right: for each node x, total, self and the index of its name; in a diff
x, total and self of the left side, those of the right side, and the index. The children of a node begin after its own
value, at its x + self, and each further one where the one before ends. x is written as the distance from where the
node before in the level ends. Level 0 is the root, and names[0] is its name.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from api.array_types import Values
from api.tree.functions import FunctionRows
from api.tree.graph import Graph
from api.tree.levels import level_bounds
from icestream.pyroscope.querier_pb2 import FlameGraph, FlameGraphDiff, Level


def flame_graph(graph: Graph, functions: FunctionRows) -> FlameGraph:
    """A graph of one side."""
    names, index = _names(graph, functions)
    return FlameGraph(
        names=names,
        levels=_levels(graph, [*_side(graph, 0), index]),
        total=int(graph.total_values[0, 0]),
        max_self=int(graph.self_values.max()),
    )


def flame_graph_diff(graph: Graph, functions: FunctionRows) -> FlameGraphDiff:
    """A graph of two sides: 0 is the left one."""
    names, index = _names(graph, functions)
    left, right = graph.total_values[:, 0].tolist()
    return FlameGraphDiff(
        names=names,
        levels=_levels(graph, [*_side(graph, 0), *_side(graph, 1), index]),
        total=left + right,
        max_self=int(graph.self_values.max()),
        leftTicks=left,
        rightTicks=right,
    )


def _names(graph: Graph, functions: FunctionRows) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Each name once, the root's first; and the index of each node's name."""
    used, function = np.unique(graph.function, return_inverse=True)
    indexes = {functions[int(graph.function[0])].name: 0}
    of_used = [indexes.setdefault(functions[row].name, len(indexes)) for row in used.tolist()]
    return list(indexes), np.array(of_used, np.int64)[function]


def _side(graph: Graph, side: int) -> list[Values]:
    """The columns x (as distance), total and self of one side."""
    totals, selves = graph.total_values[side], graph.self_values[side]
    x = np.zeros(len(totals), np.int64)
    distance = np.zeros(len(totals), np.int64)
    for start, end in pairwise(level_bounds(graph.parent)[1:]):
        parents, level = graph.parent[start:end], totals[start:end]
        before = np.cumsum(level) - level
        x[start:end] = x[parents] + selves[parents] + before - before[np.searchsorted(parents, parents)]
        ends = x[start:end] + level
        distance[start:end] = x[start:end] - np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    return [distance, totals, selves]


def _levels(graph: Graph, columns: list[Values]) -> list[Level]:
    rows = np.stack(columns, axis=1)
    return [Level(values=rows[start:end].ravel().tolist()) for start, end in pairwise(level_bounds(graph.parent))]
