"""Chooses stacks by the functions on them."""

import numpy as np
import numpy.typing as npt

from api.tree.stack_cache import FunctionStacks
from api.views.patterns import matching
from api.views.used_part import with_rows_below


def has_function(stacks: FunctionStacks, pattern: str) -> npt.NDArray[np.bool_]:
    """Whether a stack (n,) has a frame whose function, module or source file matches (api/views/patterns.py). `stacks`
    are as of `used_part`."""
    matched = matching(stacks.functions, stacks.tree.function, pattern)
    return with_rows_below(stacks.tree, matched)[stacks.leaves]
