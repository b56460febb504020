"""What is used stays, and memory is bounded."""

import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from icestream.columns.recent_ids import RecentIds

IDS = st.integers(0, 50) | st.integers(2**64 - 5, 2**64 - 1)


@given(st.lists(st.sets(IDS), max_size=20), st.lists(IDS))
def test_a_set_is_a_set(added: list[set[int]], asked: list[int]) -> None:
    ids, expected = RecentIds(10_000), set[int]()
    for some in added:
        new = sorted(some - expected)
        ids.add(np.array(new, dtype=np.uint64))
        expected |= some
    assert len(ids) == len(expected)
    assert ids.contains(np.array(asked, dtype=np.uint64)).tolist() == [stack_id in expected for stack_id in asked]


def test_a_set_stays_within_its_limit_and_finds_what_came_last() -> None:
    ids = RecentIds(10_000)
    random = np.random.default_rng(1)
    for _ in range(100):
        some = np.unique(random.integers(0, 2**64, 900, dtype=np.uint64))
        ids.add(some[~ids.contains(some)])
        assert len(ids) <= 10_000
        assert ids.contains(some).all()


def test_ids_in_use_are_not_forgotten_however_many_others_come() -> None:
    ids = RecentIds(10_000)
    random = np.random.default_rng(2)
    used = np.arange(1000, dtype=np.uint64)
    ids.add(used)
    for _ in range(100):
        some = random.integers(2**32, 2**64, 900, dtype=np.uint64)
        ids.add(some)
        assert ids.contains(used).all()


def test_a_full_set_takes_so_many_bytes_for_each_of_its_ids() -> None:
    tracemalloc.start()
    try:
        ids = RecentIds(100_000)
        for first in range(0, 400_000, 1000):
            ids.add(np.arange(first, first + 1000, dtype=np.uint64))
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 50_000 <= len(ids) <= 100_000
    assert size < 100_000 * 9
