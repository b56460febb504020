"""Distinct numbers and stable orders are those of numpy, which sorts."""

import numpy as np
import pytest

from api.tree.distinct import distinct_numbers
from api.tree.levels import stable_order


@pytest.mark.parametrize("most", [3, 70_000, 2**31 - 1])
def test_numbers_are_found_and_ordered_as_by_sorting(most: int) -> None:
    random = np.random.default_rng(most)
    for length in (0, 1, 2, 30, 1000):
        numbers = random.integers(0, most, length).astype(np.int32)
        numbers = np.concatenate([numbers, numbers[: length // 2]])
        for found, expected in zip(distinct_numbers(numbers), np.unique(numbers, return_inverse=True), strict=True):
            np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(stable_order(numbers), np.argsort(numbers, kind="stable"))


def test_blocks_far_apart_are_joined() -> None:
    numbers = np.array([2**30 + 5, 7, 2**30, 65_535, 65_536, 7])
    distinct, index = distinct_numbers(numbers)
    assert distinct.tolist() == [7, 65_535, 65_536, 2**30, 2**30 + 5]
    assert distinct[index].tolist() == numbers.tolist()
