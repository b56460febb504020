"""Sums of functions, also where recursion is known from questions before."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.tree.graph import build_graph
from api.tree.growing_tree import GrowingTree
from api.tree.top_table import TopTable, top_table, top_table_of

STACKS = st.lists(st.lists(st.integers(1, 6), max_size=8), min_size=1, max_size=12)
QUESTIONS = st.lists(STACKS, min_size=1, max_size=4)


def as_dict(table: TopTable) -> dict[int, tuple[int, int]]:
    return {
        function: (flat, cumulative)
        for function, flat, cumulative in zip(
            table.groups.tolist(), table.flat[0].tolist(), table.cumulative[0].tolist(), strict=True
        )
    }


def expected(stacks: list[list[int]]) -> dict[int, tuple[int, int]]:
    """The root is function 0, which is on every stack."""
    flat, cumulative = Counter[int](), Counter[int]()
    for value, stack in enumerate(stacks, 1):
        flat[stack[-1] if stack else 0] += value
        for function in {0, *stack}:
            cumulative[function] += value
    return {function: (flat[function], cumulative[function]) for function in cumulative}


@given(questions=QUESTIONS)
def test_recursion_counts_once_in_a_tree_that_grows_between_questions(questions: list[list[list[int]]]) -> None:
    nodes = GrowingTree()
    for stacks in questions:
        leaves = []
        for stack in stacks:
            leaf = 0
            for function in stack:
                leaf = nodes.child(leaf, function)
            leaves.append(leaf)
        rows = np.array(leaves, np.int32)
        values = np.arange(1, len(stacks) + 1, dtype=np.int64)[np.newaxis]
        tree = nodes.tree
        graph = build_graph(tree, rows, values)
        assert tree.repeats is not None
        for _ in range(2):
            assert as_dict(top_table_of(tree, rows, values)) == expected(stacks)
        for _ in range(2):  # the second time, everything is noted
            assert as_dict(top_table(graph, tree)) == expected(stacks)
            assert (tree.repeats[graph.tree_row] >= 0).all()
        forgetful = replace(tree, repeats=None)
        assert as_dict(top_table(graph, forgetful)) == expected(stacks)
        assert as_dict(top_table_of(forgetful, rows, values)) == expected(stacks)
        with pytest.MonkeyPatch.context() as patch:  # as where leaves are few
            patch.setattr("api.tree.row_sums._SHARE", 0)
            assert as_dict(top_table_of(tree, rows, values)) == expected(stacks)
            few = build_graph(tree, rows, values)
        for name in ("parent", "function", "self_values", "total_values", "tree_row"):
            assert np.array_equal(getattr(few, name), getattr(graph, name))
