"""What sinks remember: what is used stays, and memory is bounded."""

import tracemalloc
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pytest

from sinks.runner.seen import SeriesDays, TriedLocations

pytestmark = pytest.mark.slow

T = TypeVar("T")


def measured(make: Callable[[], T]) -> tuple[T, int]:
    """Returns what was made, and the bytes that it takes."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        made = make()
        return made, tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


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
    def fill() -> SeriesDays:
        series = SeriesDays(limit=50_000)
        series.add(range(10**18, 10**18 + 120_000), 20_000)
        return series

    series, size = measured(fill)
    assert len(series) <= 100_000
    assert size < 100_000 * 100


def test_locations_are_tried_once_in_each_version() -> None:
    tried = TriedLocations()
    first, more = np.arange(5, dtype=np.uint64), np.arange(3, 8, dtype=np.uint64)
    tried.add("a", 1, first)
    assert tried.untried("a", 1, more).tolist() == [False, False, True, True, True]
    assert tried.untried("a", 2, more).all()
    tried.add("a", 1, more)
    assert not tried.untried("a", 1, np.arange(8, dtype=np.uint64)).any()
    tried.add("a", 2, first[:1])
    assert tried.untried("a", 2, first).tolist() == [False, True, True, True, True]


@pytest.mark.parametrize("locations", [1, 1000])
def test_tried_locations_take_a_bounded_number_of_bytes_and_those_in_use_stay(locations: int) -> None:
    used = np.arange(3, dtype=np.uint64)

    def fill() -> TriedLocations:
        tried = TriedLocations(limit_bytes=1_000_000)
        tried.add("used", 1, used)
        for i in range(20_000 // locations + 1000):
            tried.add(f"gnu:{i:040x}", 1, np.arange(locations, dtype=np.uint64))
            assert not tried.untried("used", 1, used).any()
        return tried

    tried, size = measured(fill)
    assert size < 2_000_000
    assert tried.untried(f"gnu:{0:040x}", 1, used[:1]).all()
