"""Chooses stacks by functions that must, or must not, be on them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from api.tree.stack_cache import FunctionStacks
from api.views.used_part import with_rows_below


@dataclass(frozen=True)
class FrameFilter:
    """Names are whole ones. Patterns are as in api/views/patterns.py, but of names only, and of this case."""

    include_names: Sequence[str]
    exclude_names: Sequence[str]
    include_patterns: Sequence[str]
    exclude_patterns: Sequence[str]

    @property
    def patterns(self) -> tuple[Sequence[str], Sequence[str]]:
        """Both kinds."""
        return self.include_patterns, self.exclude_patterns


def passes(stacks: FunctionStacks, wanted: FrameFilter) -> npt.NDArray[np.bool_]:
    """Whether a stack (n,) has a function for each name and pattern to include, and none for those to exclude.

    One function may stand for several of them; `[no stack]` and the like are names, too. `stacks` are as of
    `used_part`.
    """
    tree = stacks.tree
    used, index = np.unique(tree.function[1:], return_inverse=True)
    names = pa.array([stacks.functions[row].name for row in used.tolist()], pa.string())

    def named(name: str) -> npt.NDArray[np.bool_]:
        return np.asarray(pc.equal(names, name), bool)

    def matching(pattern: str) -> npt.NDArray[np.bool_]:
        return np.asarray(pc.match_substring_regex(names, pattern), bool)

    def on_stack(functions: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        chosen = np.zeros(len(tree.parent), bool)
        chosen[1:] = functions[index]
        return with_rows_below(tree, chosen)[stacks.leaves]

    included = [*map(named, wanted.include_names), *map(matching, wanted.include_patterns)]
    excluded = [*map(named, wanted.exclude_names), *map(matching, wanted.exclude_patterns)]
    result = np.ones(len(stacks.leaves), bool)
    for functions in included:
        result &= on_stack(functions)
    if excluded:
        result &= ~on_stack(np.any(excluded, axis=0))
    return result
