"""What sinks remember: what is used stays, and memory is bounded."""

import tracemalloc

import numpy as np

from sinks.seen import Keys, SeriesDays, TriedLocations


def test_series_that_are_used_stay_when_others_are_forgotten() -> None:
    series = SeriesDays(limit=100)
    series.add(range(10), 7)
    for series_id in range(10, 1000):
        series.add((series_id,), 7)
        assert all(series.written(used, 7) for used in range(10))
        assert len(series) <= 200
    assert not series.written(500, 7)
    assert series.written(999, 7)
    assert not series.written(999, 8)


def test_series_take_a_bounded_number_of_bytes() -> None:
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    series = SeriesDays(limit=50_000)
    series.add(range(10**18, 10**18 + 120_000), 20_000)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(series) <= 100_000
    assert after - before < 100_000 * 100


def test_locations_are_tried_once_in_each_version_and_forgotten_by_build_id() -> None:
    tried = TriedLocations(limit=10)
    first, more = np.arange(5, dtype=np.uint64), np.arange(3, 8, dtype=np.uint64)
    tried.add("a", 1, first)
    assert tried.untried("a", 1, more).tolist() == [False, False, True, True, True]
    assert tried.untried("a", 2, more).all()
    tried.add("a", 1, more)
    assert not tried.untried("a", 1, np.arange(8, dtype=np.uint64)).any()
    tried.add("b", 1, first)
    assert len(tried) == 5
    assert tried.untried("a", 1, first).all()
    assert not tried.untried("b", 1, first).any()
    tried.add("b", 2, first[:1])
    assert tried.untried("b", 2, first).tolist() == [False, True, True, True, True]


def test_keys_that_are_used_stay_and_memory_is_bounded() -> None:
    keys, used = Keys(limit=1000), np.array([7], np.uint64)
    for first in range(0, 100_000, 500):
        keys.add(np.arange(first, first + 500, dtype=np.uint64) + np.uint64(10))
        keys.add(used)
    assert keys.has(used).all()
    assert not keys.has(np.array([10], np.uint64)).any()
    assert len(keys) <= 3500
