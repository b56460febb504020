"""The part of a tree that stacks use."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from api.tree.graph import Tree
from api.tree.levels import levels, rows_above, stable_order
from api.tree.stack_cache import FunctionStacks


def used_part(stacks: FunctionStacks) -> FunctionStacks:
    """The same stacks in a tree that has no other rows, and is ordered by depth."""
    tree = stacks.tree
    is_root = np.zeros(len(tree.parent), bool)
    is_root[0] = True
    rows = np.concatenate([np.zeros(1, np.int32), rows_above(stacks.leaves, tree.parent, is_root)])
    rows = rows[stable_order(tree.depth[rows])]
    new_row = np.zeros(len(tree.parent), np.int32)
    new_row[rows] = np.arange(len(rows), dtype=np.int32)
    used = Tree(new_row[tree.parent[rows]], tree.function[rows], tree.depth[rows])
    return replace(stacks, leaves=new_row[stacks.leaves], tree=used)


def levels_below_root(tree: Tree) -> Iterator[slice]:
    """The rows of each level, outermost first, of a tree ordered by depth."""
    for start, end in levels(tree.depth)[1:]:
        yield slice(start, end)


def with_rows_below(tree: Tree, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Whether a row (n,) of a tree ordered by depth is chosen or below a chosen one."""
    below = chosen.copy()
    for level in levels_below_root(tree):
        below[level] |= below[tree.parent[level]]
    return below
