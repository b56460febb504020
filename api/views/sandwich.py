"""What calls a function, and what it calls: both from its outermost frame on each stack, so recursion counts once."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from api.tree.functions import Function
from api.tree.stack_cache import FunctionStacks
from api.views.hide import without
from api.views.invert import invert
from api.views.used_part import levels_below_root, with_rows_below


@dataclass(frozen=True)
class Sandwich:
    """Stacks that have the function; the first frame of both sides is the function itself."""

    has_function: npt.NDArray[np.bool_]  # (all stacks,)
    callers: FunctionStacks  # from the function to the outermost frame
    callees: FunctionStacks  # from the function to the innermost frame


@dataclass(frozen=True)
class NamedFunction:
    """Functions of this name; and of this module and source file, if not None."""

    name: str
    module: str | None
    file: str | None

    def is_one(self, function: Function) -> bool:
        """Whether a function is meant."""
        return (
            function.name == self.name and self.module in (None, function.module) and self.file in (None, function.file)
        )

    def rows(self, stacks: FunctionStacks) -> npt.NDArray[np.bool_]:
        """Whether a row of the tree (n,) is one."""
        rows, index = np.unique(stacks.tree.function, return_inverse=True)
        matches = [self.is_one(stacks.functions[row]) for row in rows.tolist()]
        matches[0] = False  # the root's, whose row comes first
        return np.array(matches)[index]


def sandwich(stacks: FunctionStacks, is_function: npt.NDArray[np.bool_]) -> Sandwich:
    """`is_function`: whether a row of the tree is the function. `stacks` are as of `used_part`."""
    tree = stacks.tree
    inside = with_rows_below(tree, is_function)
    outermost = np.zeros(len(tree.parent), np.int32)  # the row of the outermost frame above, 0 if there is none
    for level in levels_below_root(tree):
        above = outermost[tree.parent[level]]
        rows = np.arange(level.start, level.stop, dtype=np.int32)
        outermost[level] = np.where((above == 0) & is_function[level], rows, above)
    has_function = inside[stacks.leaves]
    chosen = replace(stacks, leaves=stacks.leaves[has_function])
    return Sandwich(
        has_function,
        invert(replace(chosen, leaves=outermost[chosen.leaves])),
        without(chosen, ~inside),
    )
