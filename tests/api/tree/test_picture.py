"""What is cut from a picture is one child where it was cut, in its place among its siblings."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from api.array_types import Rows
from api.tree.functions import CUT
from api.tree.graph import build_graph
from api.tree.picture import make_picture
from tests.api.tree.test_graph import random_tree


@pytest.mark.parametrize("seed", range(40))
def test_a_cut_picture_has_all_sums_in_level_order(seed: int) -> None:
    random = np.random.default_rng(seed)
    nodes, sides = int(random.integers(2, 80)), int(random.integers(1, 3))
    tree = random_tree(random, nodes)
    tree = replace(tree, function=tree.function + np.int32(10))  # none is CUT
    leaves = random.integers(0, nodes, nodes).astype(np.int32)
    graph = build_graph(tree, leaves, random.integers(0, 9, (sides, nodes)))
    root = int(random.integers(0, len(graph.parent))) if seed % 2 else 0
    width = int(random.integers(1, 50)) if seed % 3 else None
    picture = make_picture(graph, int(random.integers(1, 40)), width, root, [1.0] * sides)
    drawn = picture.graph

    parent, children = drawn.parent.tolist(), defaultdict(list)
    for row, above in enumerate(parent[1:], start=1):
        children[above].append(row)
    assert parent[0] == -1
    assert parent[1:] == sorted(parent[1:])
    weights = np.abs(drawn.total_values).max(axis=0).tolist()
    for above, rows in children.items():
        assert drawn.function[above] != CUT
        assert [weights[row] for row in rows] == sorted((weights[row] for row in rows), reverse=True)
        assert sum(drawn.function[row] == CUT for row in rows) <= 1
    is_cut = drawn.function == CUT
    assert len(parent) - int(is_cut.sum()) + picture.cut_nodes == len(graph.parent)
    assert picture.cut_values.tolist() == drawn.total_values[:, is_cut].sum(axis=1).tolist()
    for row in range(len(parent)):
        below = drawn.total_values[:, children[row]].sum(axis=1)
        assert (drawn.self_values[:, row] + below).tolist() == drawn.total_values[:, row].tolist()
    assert drawn.total_values[:, 0].tolist() == graph.total_values[:, 0].tolist()
    assert drawn.total_values[:, picture.root].tolist() == graph.total_values[:, root].tolist()
    assert _path(drawn.parent, drawn.function, picture.root) == _path(graph.parent, graph.function, root)


def _path(parent: Rows, function: Rows, row: int) -> list[int]:
    path = []
    while row >= 0:
        path.append(int(function[row]))
        row = int(parent[row])
    return path
