"""Graphs are in level order: siblings together, the heaviest first, and of equal ones the first in the tree."""

import numpy as np

from api.tree.graph import Tree, build_graph


def random_tree(random: np.random.Generator, nodes: int) -> Tree:
    parent, depth = np.zeros(nodes, np.int32), np.zeros(nodes, np.int32)
    for row in range(1, nodes):
        parent[row] = random.integers(max(0, row - 9), row)
        depth[row] = depth[parent[row]] + 1
    return Tree(parent, random.integers(0, 9, nodes).astype(np.int32), depth)


def test_level_order_and_sums_are_those_of_a_walk() -> None:
    random = np.random.default_rng(3)
    for nodes in (1, 2, 5, 60, 300):
        tree = random_tree(random, nodes)
        leaves = random.integers(0, nodes, 2 * nodes).astype(np.int32)
        values = random.integers(-2, 5, (2, len(leaves)))
        totals = {row: np.zeros(2, np.int64) for row in range(nodes)}
        used = {0}
        for leaf, value in zip(leaves.tolist(), values.T, strict=True):
            row = leaf
            while row > 0:
                totals[row] += value
                used.add(row)
                row = int(tree.parent[row])
            totals[0] += value
        expected, level = [], [0]
        while level:
            expected += level
            level = [
                child
                for row in level
                for child in sorted(
                    (each for each in sorted(used - {0}) if tree.parent[each] == row),
                    key=lambda each: -int(np.abs(totals[each]).max()),
                )
            ]
        graph = build_graph(tree, leaves, values)
        assert graph.function[1:].tolist() == tree.function[expected[1:]].tolist()
        assert graph.total_values.T.tolist() == [totals[row].tolist() for row in expected]
        place = {row: index for index, row in enumerate(expected)}
        assert graph.parent.tolist() == [-1, *(place[int(tree.parent[row])] for row in expected[1:])]
