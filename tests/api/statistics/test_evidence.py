"""Changes of many functions at once: supported by the samples, or not."""

import math

import numpy as np
import pytest

from api.statistics.counts import mean_count, share
from api.statistics.estimates import deviations, difference
from api.statistics.evidence import FEWEST, Evidence

PERIOD = 10_000_000


def changed(now: list[int], before: list[int], scales: tuple[float, float] | None = None) -> list[bool]:
    samples = (sum(now), sum(before))
    evidence = Evidence((samples[0] * PERIOD, samples[1] * PERIOD), samples, scales)
    return evidence.changed(np.array([now, before], np.int64) * PERIOD).tolist()


def test_what_changed_is_told_from_what_did_not() -> None:
    assert changed([300, 700, 1000], [100, 900, 1000]) == [True, True, False]
    assert changed([0, 500], [40, 460]) == [True, True]
    assert changed([4, 46], [0, 50]) == [False, False]
    assert changed([200, 200], [100, 100]) == [False, False]
    assert changed([200, 200], [100, 100], (1.0, 1.0)) == [True, True]
    assert changed([200, 200], [100, 100], (0.5, 1.0)) == [False, False]


@pytest.mark.parametrize("by_share", [True, False])
def test_it_is_the_interval_of_one_change(by_share: bool) -> None:
    random = np.random.default_rng(1)
    counts = random.integers(0, 300, (2, 200))
    total = counts.sum(axis=1).tolist()
    found = changed(*counts.tolist(), scales=None if by_share else (1.0, 1.0))
    z = deviations(0.95, int((counts.sum(axis=0) >= FEWEST).sum()))
    for column, is_changed in enumerate(found):
        now, before = (
            share(counts[side, column], total[side], z) if by_share else mean_count(counts[side, column], z)
            for side in (0, 1)
        )
        enough = counts[:, column].sum() >= FEWEST
        assert is_changed == (enough and difference(now, before).excludes_zero)


def test_profiles_that_are_alike_have_a_change_in_one_case_of_twenty_at_most() -> None:
    random = np.random.default_rng(2)
    true = 1000 * random.pareto(1.2, 100) / 100
    wrong = sum(any(changed(*(random.poisson(true).tolist() for _ in range(2)))) for _ in range(400))
    assert wrong <= 400 * 0.05 + 2 * math.sqrt(400 * 0.05)
