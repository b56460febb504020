"""Sums of values by stack: whole numbers of 64 bits, also where averages are not whole."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from api.array_types import Values
from api.errors import too_large

SUMS = "sum(value) AS sum_of_values, sum(toFloat64(value)) AS size, sum(count) AS sum_of_counts"
HAVING = "HAVING sum_of_values != 0 OR sum_of_counts != 0"
"""For a SELECT of rows with `value` and `count`."""
PLAIN_STACK = "CAST(stack_id AS UInt64) AS stack_id"
"""For a SELECT of rows that are summed up by stack and something else: with the dictionary that `samples` has for
stacks, ClickHouse takes 1.6 times as long. By stack alone, it takes no longer."""


def whole_sums(answer: pa.Table, *order: npt.NDArray[Any]) -> Values:
    """Returns the sums of n rows that SUMS has selected. Raises ApiError if they do not fit into 64 bits.

    Averages are rounded so that the sum of all, and of the first ones in an order, is off by 0.5 at most. If each was
    rounded alone, many small ones would all be 0. `order`: keys of the rows, the last one counts most (numpy.lexsort).
    """
    check_size(answer)
    sums = answer["sum_of_values"].to_numpy()
    whole: Values = sums.astype(np.int64)
    if sums.dtype.kind != "f":
        return whole
    rows = np.lexsort(order)
    whole[rows] = np.diff(np.rint(np.cumsum(sums[rows])), prepend=0.0)
    return whole


def check_size(answer: pa.Table) -> None:
    """Raises ApiError if values do not fit into 64 bits; ClickHouse would not. `size` has their approximate sums.

    So many nanoseconds are 292 years. A thousand hosts with 500 waiting threads each have them in five hours.
    """
    if np.abs(answer["size"].to_numpy()).sum() >= 2.0**63:
        raise too_large("the values add up to more than 64 bits can hold")
