"""Ranges of rows: what a loop in Python says."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from icestream import index_ranges

COUNTS = st.lists(st.integers(0, 6), max_size=20)


@given(COUNTS, st.sampled_from(["u4", "u8", "i8"]))
def test_ranges_are_what_a_loop_says(counts: list[int], dtype: str) -> None:
    column = np.array(counts, dtype)
    rows = [(i, position) for i, count in enumerate(counts) for position in range(count)]
    assert index_ranges.owners(column).tolist() == [i for i, _ in rows]
    assert index_ranges.positions(column).tolist() == [position for _, position in rows]
    assert index_ranges.starts(column).tolist() == [sum(counts[:i]) for i in range(len(counts))]
    first = [7 * i % 5 for i in range(len(counts))]
    expected = [first[i] + position for i, position in rows]
    assert index_ranges.expand(np.array(first, dtype), column).tolist() == expected
    assert index_ranges.expand(np.array(first, dtype), column).dtype == np.int64
