"""Turns stacks round: the innermost frame comes first, and what called it below it."""

from dataclasses import replace

import numpy as np

from api.tree.growing_tree import GrowingTree
from api.tree.stack_cache import FunctionStacks


def invert(stacks: FunctionStacks) -> FunctionStacks:
    """The stacks from their leaves to their outermost frames."""
    tree = stacks.tree
    nodes = GrowingTree()
    leaves, stack_of_leaf = np.unique(stacks.leaves, return_inverse=True)
    rows = np.zeros(len(leaves), np.int32)
    pending, frame = np.flatnonzero(leaves), leaves[leaves != 0]
    while len(pending):
        rows[pending] = nodes.children(rows[pending], tree.function[frame])
        frame = tree.parent[frame]
        pending, frame = pending[frame != 0], frame[frame != 0]
    return replace(stacks, leaves=rows[stack_of_leaf], tree=nodes.tree)
