"""Chooses stacks by the functions on them."""

import numpy as np
import numpy.typing as npt

from api.tree.stack_cache import FunctionStacks
from api.views.patterns import matching
from api.views.used_part import used_part, with_rows_below


def has_function(stacks: FunctionStacks, pattern: str) -> npt.NDArray[np.bool_]:
    """Whether a stack (n,) has a frame whose function, module or source file matches (api/views/patterns.py)."""
    used = used_part(stacks)
    matched = matching(used.functions, used.tree.function, pattern)
    return with_rows_below(used.tree, matched)[used.leaves]
