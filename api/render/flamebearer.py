"""Graphs as Pyroscope's flame graphs (`FlameGraph` and `FlameGraphDiff` in schemas/icestream/pyroscope/querier.proto).

A level has the nodes of one depth from left to right: for each node x, total, self and the index of its name; in a diff
x, total and self of the left side, those of the right side, and the index. The children of a node begin after its own
value, at its x + self, and each further one where the one before ends. x is written as the distance from where the
node before in the level ends. Level 0 is the root, and names[0] is its name.
"""

from itertools import pairwise

import numpy as np

from api.array_types import Rows, Values
from api.render.by_name import by_name
from api.tree.functions import FunctionRows
from api.tree.graph import Graph
from api.tree.levels import level_bounds
from icestream.pyroscope.querier_pb2 import FlameGraph, FlameGraphDiff, Level


def flame_graph(graph: Graph, functions: FunctionRows) -> FlameGraph:
    """A graph of one side."""
    graph, names = by_name(graph, functions)
    return FlameGraph(
        names=names,
        levels=_levels(graph, [*_side(graph, 0), graph.function]),
        total=int(graph.total_values[0, 0]),
        max_self=int(graph.self_values.max()),
    )


def flame_graph_diff(graph: Graph, functions: FunctionRows) -> FlameGraphDiff:
    """A graph of two sides: 0 is the left one."""
    graph, names = by_name(graph, functions)
    left, right = graph.total_values[:, 0].tolist()
    return FlameGraphDiff(
        names=names,
        levels=_levels(graph, [*_side(graph, 0), *_side(graph, 1), graph.function]),
        total=left + right,
        max_self=int(graph.self_values.max()),
        leftTicks=left,
        rightTicks=right,
    )


def _side(graph: Graph, side: int) -> list[Values | Rows]:
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


def _levels(graph: Graph, columns: list[Values | Rows]) -> list[Level]:
    rows = np.stack(columns, axis=1)
    return [Level(values=rows[start:end].ravel().tolist()) for start, end in pairwise(level_bounds(graph.parent))]
