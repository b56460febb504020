"""Paths of nodes, in parts."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.render import paths
from api.render.paths import paths_from_root


@given(st.lists(st.integers(0, 10**6), max_size=40), st.integers(1, 5), st.data())
def test_every_path_leads_from_a_child_of_the_root_to_its_node(
    choices: list[int], part: int, data: st.DataObject
) -> None:
    parents = [choice % (row + 1) for row, choice in enumerate(choices)]
    parent = np.array([-1, *np.maximum.accumulate(np.array(parents, np.int64)).tolist()], np.int32)  # in level order
    rows = np.array(data.draw(st.lists(st.integers(0, len(parent) - 1), unique=True)), np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "_PATHS", part)
        found = [path for some in paths_from_root(rows, parent, np.arange(len(parent)) + 7) for path in some]
    assert len(found) == len(rows)
    for row, path in zip(rows.tolist(), found, strict=True):
        nodes = [0, *(number - 7 for number in path)]
        assert nodes[-1] == row
        assert all(parent[below] == above for above, below in itertools.pairwise(nodes))
