"""Graphs with the names of functions only, as Pyroscope's calls have them. The tools that ask find a node by the names
on the path to it, so siblings of one name are one node."""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from api.tree.functions import CUT, FunctionRows
from api.tree.graph import Graph, GraphNodes, in_level_order
from api.tree.growing_tree import GrowingTree
from api.tree.levels import level_bounds

_CUT_NAME = "other"
"""Pyroscope's name of what was cut below a node. Profiles Drilldown asks for more below the node when this is seen. A
function of this name is one node with what was cut beside it: by its name, nobody could tell them apart."""


def by_name(graph: Graph, functions: FunctionRows) -> tuple[Graph, list[str]]:
    """The graph, whose column `function` has indexes into the names; the root's name is the first."""
    used, function = np.unique(graph.function, return_inverse=True)
    number = {functions[int(graph.function[0])].name: 0}
    texts = (_CUT_NAME if row == CUT else functions[row].name for row in used.tolist())
    name = np.array([number.setdefault(text, len(number)) for text in texts], np.int32)[function]
    if len(number) == len(used):  # no siblings have one name
        return replace(graph, function=name), list(number)
    nodes = GrowingTree()
    row_of = np.zeros(len(graph.parent), np.int32)
    for start, end in pairwise(level_bounds(graph.parent)[1:]):
        row_of[start:end] = nodes.children(row_of[graph.parent[start:end]], name[start:end])
    tree = nodes.tree
    sums = np.zeros((2, len(graph.self_values), len(tree.parent)), np.int64)
    for summed, values in zip(sums, (graph.self_values, graph.total_values), strict=True):
        for side, side_values in zip(summed, values, strict=True):
            np.add.at(side, row_of, side_values)
    named, _ = in_level_order(GraphNodes(tree.parent, tree.function, tree.depth, sums[0], sums[1]))
    return named, list(number)
