"""Regular expressions of callers: which functions they match.

The engine is RE2's, whose time grows with the length of the text only, and which refuses what would need much memory.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from api.array_types import Rows
from api.errors import bad_request
from api.queries.selection.pattern_size import MAX_SIZE, pattern_size
from api.tree.functions import NOT_CODE, FunctionRows


def check_pattern(pattern: str, parameter: str, ignore_case: bool = False) -> None:
    """Raises ApiError that names the parameter if `pattern` is no regular expression, or is too large.

    It needs more memory where case is ignored.
    """
    check_size([pattern], parameter)
    try:
        pc.match_substring_regex(pa.array([""]), pattern, ignore_case=ignore_case)
    except pa.ArrowInvalid as error:
        reason = str(error).partition(": ")[2] or str(error)
        hint = "the syntax is RE2's"
        raise bad_request("bad_regex", f"{parameter}: not a regular expression: {reason[:300]}", hint) from None


def check_size(patterns: Iterable[str], parameter: str) -> None:
    """Raises ApiError if patterns of one request are too large together."""
    if sum(map(pattern_size, patterns)) > MAX_SIZE:
        problem = f"not more than {MAX_SIZE} elements, where what is repeated counts as often"
        raise bad_request("bad_regex", f"{parameter}: expected {problem}", "repeat less, as in a* for a{0,999}")


def matching(functions: FunctionRows, function: Rows, pattern: str) -> npt.NDArray[np.bool_]:
    """Whether the name, module or source file of a function (n rows) matches; frames that are not code never do.

    The pattern has RE2's syntax (`check_pattern`), is unanchored, and matches regardless of case.
    """
    used, index = np.unique(function, return_inverse=True)
    rows = [functions[row] for row in used.tolist()]
    # All at once, because each call compiles the pattern.
    texts = [*(f.name for f in rows), *(f.module for f in rows), *(f.file for f in rows)]
    matches = pc.match_substring_regex(pa.array(texts, pa.string()), pattern, ignore_case=True)
    matched: npt.NDArray[np.bool_] = matches.to_numpy(zero_copy_only=False).reshape(3, len(rows)).any(axis=0)
    matched[used < len(NOT_CODE)] = False
    return matched[index]
