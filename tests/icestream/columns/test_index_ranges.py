"""Ranges of rows: what a loop in Python says."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from icestream.columns import index_ranges

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


@given(COUNTS, st.sampled_from(["u4", "u8", "i8"]), st.data())
def test_rows_of_some_ranges_are_what_a_loop_says(counts: list[int], dtype: str, data: st.DataObject) -> None:
    ranges = data.draw(st.lists(st.integers(0, len(counts) - 1), max_size=9)) if counts else []
    expected = [sum(counts[:i]) + position for i in ranges for position in range(counts[i])]
    found = index_ranges.rows_of(np.array(ranges, np.int64), np.array(counts, dtype))
    assert found.tolist() == expected
    assert found.dtype == np.int64
