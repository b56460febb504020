"""Sets of keys as ascending arrays."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from icestream.columns import sorted_keys

KEYS = st.lists(st.integers(0, 9) | st.integers(2**64 - 5, 2**64 - 1))


@given(KEYS, KEYS)
def test_a_set_has_each_key_once_and_says_where(keys: list[int], wanted: list[int]) -> None:
    distinct = sorted_keys.distinct(np.array(keys, np.uint64))
    assert distinct.dtype == np.uint64
    assert distinct.tolist() == sorted(set(keys))
    rows = sorted_keys.find(distinct, np.array(wanted, np.uint64)).tolist()
    assert [distinct[row] if row >= 0 else None for row in rows] == [key if key in keys else None for key in wanted]
