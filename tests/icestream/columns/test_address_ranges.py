"""Addresses in ranges, and keys in sorted sets: what a loop in Python says."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from icestream.columns import address_ranges, sorted_keys


@given(st.sets(st.integers(0, 50), max_size=12), st.lists(st.integers(0, 60), max_size=20))
def test_an_address_is_in_the_range_that_covers_it(bounds: set[int], addresses: list[int]) -> None:
    ordered = sorted(bounds)
    ranges = list(zip(ordered[::2], ordered[1::2], strict=False))
    start, end = np.array(ranges, np.uint64).reshape(-1, 2).T
    expected = [next((i for i, (a, b) in enumerate(ranges) if a <= address < b), -1) for address in addresses]
    assert address_ranges.find(start, end, np.array(addresses, np.uint64)).tolist() == expected


@given(st.sets(st.integers(0, 20), max_size=12), st.lists(st.integers(0, 25), max_size=20))
def test_a_key_is_found_in_its_row(keys: set[int], wanted: list[int]) -> None:
    ordered = sorted(keys)
    expected = [ordered.index(key) if key in keys else -1 for key in wanted]
    assert sorted_keys.find(np.array(ordered, np.uint64), np.array(wanted, np.uint64)).tolist() == expected
