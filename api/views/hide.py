"""Takes frames out of stacks. What was called from a frame that is taken out is called from the one above it."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from api.array_types import Rows
from api.tree.functions import HIDDEN
from api.tree.graph import Tree
from api.tree.growing_tree import GrowingTree
from api.tree.stack_cache import FunctionStacks
from api.views.patterns import matching
from api.views.used_part import levels_below_root, used_part


def hide(stacks: FunctionStacks, pattern: str) -> FunctionStacks:
    """Without the frames whose function, module or source file matches (api/views/patterns.py).

    Their own values go to the frame above them. A stack of which no frame is left has the frame [hidden].
    """
    used = used_part(stacks)
    return without(used, matching(used.whole_functions, used.tree.function, pattern))


def without(stacks: FunctionStacks, dropped: npt.NDArray[np.bool_]) -> FunctionStacks:
    """The stacks without `dropped` rows. `stacks` are as of `used_part`."""
    if not dropped.any():
        return stacks
    leaves, tree = rebuild(stacks, dropped, stacks.tree.function)
    return replace(stacks, leaves=leaves, tree=tree)


def rebuild(
    stacks: FunctionStacks, dropped: npt.NDArray[np.bool_], function: Rows, instead: Rows | None = None
) -> tuple[Rows, Tree]:
    """Leaves and tree without `dropped` rows, and with a function for each row. `instead`: the function of the one
    frame of a stack (n,) of which no frame is left, by default [hidden]. `stacks` are as of `used_part`."""
    tree = stacks.tree
    nodes = GrowingTree()
    new_row = np.zeros(len(tree.parent), np.int32)
    for level in levels_below_root(tree):
        rows = new_row[tree.parent[level]]
        kept = ~dropped[level]
        rows[kept] = nodes.children(rows[kept], function[level][kept])
        new_row[level] = rows
    leaves = new_row[stacks.leaves]
    empty = leaves == 0
    if empty.any():
        frames = np.full(int(empty.sum()), HIDDEN, np.int32) if instead is None else instead[empty]
        leaves[empty] = nodes.children(np.zeros(len(frames), np.int32), frames)
    return leaves, nodes.tree
