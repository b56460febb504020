"""Chooses stacks by their outermost functions."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from api.tree.stack_cache import FunctionStacks
from api.views.used_part import levels_below_root, with_rows_below


def begins_with(stacks: FunctionStacks, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Whether a stack (n,) begins with functions of these names, root first. `stacks` are as of `used_part`."""
    tree, levels = stacks.tree, list(levels_below_root(stacks.tree))
    if len(levels) < len(names):
        return np.zeros(len(stacks.leaves), bool)
    begins = np.arange(len(tree.parent)) == 0
    for name, level in zip(names, levels, strict=False):
        has_name = {row: stacks.functions[row].name == name for row in np.unique(tree.function[level]).tolist()}
        goes_on = np.zeros(len(tree.parent), bool)
        goes_on[level] = [has_name[row] for row in tree.function[level].tolist()]
        goes_on[level] &= begins[tree.parent[level]]
        begins = goes_on
    return with_rows_below(tree, begins)[stacks.leaves]
