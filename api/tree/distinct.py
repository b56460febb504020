"""Distinct entries of columns."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from api.array_types import Ids


def distinct_ids(ids: Ids) -> Ids:
    """`ids` in ascending order, each once. (np.unique of numpy 2.3 and later hashes, which is far slower here.)"""
    ordered = np.sort(ids)
    is_first = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    distinct: Ids = ordered[is_first]
    return distinct


def distinct_rows(*columns: npt.NDArray[np.integer]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Returns, for parallel columns of small numbers >= 0, a code for each row (equal where rows are), and the first
    row of each code.
    """
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        _, codes = np.unique(codes, return_inverse=True)
        codes = codes * (int(column.max(initial=0)) + 1) + column
    _, first_rows, codes = np.unique(codes, return_index=True, return_inverse=True)
    return codes, first_rows


def text_codes(strings: pa.Array) -> npt.NDArray[np.int32]:
    """Returns a number for each string, equal where the strings are."""
    codes: npt.NDArray[np.int32] = strings.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return codes
