"""Chooses stacks by the functions on them."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from api.array_types import Rows
from api.errors import bad_request
from api.tree.frame_functions import FrameFunctions
from api.tree.levels import rows_above
from api.tree.stack_cache import FunctionStacks


def check_pattern(pattern: str, parameter: str) -> None:
    """Raises ApiError that names the parameter if `pattern` is no regular expression."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        reason = str(error).partition(": ")[2] or str(error)
        hint = "the syntax is RE2's"
        raise bad_request("bad_regex", f"{parameter}: not a regular expression: {reason}", hint) from None


def has_function(stacks: FunctionStacks, pattern: str) -> npt.NDArray[np.bool_]:
    """Whether a stack (n,) has a frame whose function, module or source file matches a regular expression.

    The pattern has RE2's syntax (`check_pattern`), is unanchored, and matches regardless of case.
    """
    tree = stacks.tree
    is_root = np.zeros(len(tree.parent), bool)
    is_root[0] = True
    rows = rows_above(stacks.leaves, tree.parent, is_root)
    used, function = np.unique(tree.function[rows], return_inverse=True)
    has_match = np.zeros(len(tree.parent), bool)
    has_match[rows] = _matches(stacks.functions, used, pattern)[function]
    depth = tree.depth[rows]
    order = np.argsort(depth, kind="stable")
    for level in np.split(rows[order], np.flatnonzero(np.diff(depth[order])) + 1):
        has_match[level] |= has_match[tree.parent[level]]
    matched: npt.NDArray[np.bool_] = has_match[stacks.leaves]
    return matched


def _matches(functions: FrameFunctions, rows: Rows, pattern: str) -> npt.NDArray[np.bool_]:
    used = [functions[row] for row in rows.tolist()]
    matched = np.zeros(len(used), bool)
    for texts in ([f.name for f in used], [f.module for f in used], [f.file for f in used]):
        matches = pc.match_substring_regex(pa.array(texts, pa.string()), pattern, ignore_case=True)
        matched |= matches.to_numpy(zero_copy_only=False)
    return matched
