"""Confidence intervals of sampled CPU hold what they promise."""

import numpy as np
import pytest

from api.queries.operations.confidence import Sampled

PERIOD = 10_000_000


def interval_of(counts: np.ndarray, periods: np.ndarray) -> tuple[int, int]:
    """`counts` (n,) samples with `periods` (n,)."""
    sampled = Sampled(
        int((counts * periods).sum()), int(counts.sum()), float((counts * periods**2.0).sum()),
        float(max(periods[counts > 0], default=0)),
    )  # fmt: skip
    interval = sampled.confidence_interval(float(periods.max()))
    assert interval is not None
    return interval


@pytest.mark.parametrize("mean", [0.05, 0.5, 1.0, 2.7, 5.0, 15.2, 80.0, 1000.0])
def test_an_interval_has_the_mean_of_a_poisson_variable_in_95_of_100_cases(mean: float) -> None:
    counts, times = np.unique(np.random.default_rng(1).poisson(mean, 20_000), return_counts=True)
    intervals = [interval_of(np.array([count]), np.array([PERIOD])) for count in counts]
    covers = np.array([low <= mean * PERIOD <= high for low, high in intervals])
    assert (covers * times).sum() / 20_000 > 0.946  # three standard deviations below 0.95


@pytest.mark.parametrize("means", [(0.3, 0.3), (2.0, 9.0), (30.0, 4.0)])
def test_an_interval_has_the_cpu_of_hosts_with_different_periods(means: tuple[float, float]) -> None:
    random, periods = np.random.default_rng(2), np.array([PERIOD, 52_631_578])
    cpu = (np.array(means) * periods).sum()
    counts = random.poisson(means, (4000, 2))
    covers = [low <= cpu <= high for low, high in (interval_of(row, periods) for row in counts)]
    assert np.mean(covers) > 0.94


def test_samples_at_even_distances_are_nearer_than_the_interval_says() -> None:
    """A clock that ticks evenly, begun at a random moment, as a thread on one CPU is sampled."""
    random, cpu = np.random.default_rng(3), 30_000_000
    period = 52_631_578
    counts = np.floor(random.random(5000) + cpu / period).astype(int)
    covers = [low <= cpu <= high for low, high in (interval_of(np.array([c]), np.array([period])) for c in counts)]
    assert np.mean(covers) > 0.95


@pytest.mark.parametrize(
    ("samples", "low", "high"), [(0, 0, 3.689), (1, 0.025, 5.572), (4, 1.090, 10.242), (100, 81.364, 121.627)]
)
def test_an_interval_is_garwoods(samples: int, low: float, high: float) -> None:
    """Values of Garwood's table."""
    found = interval_of(np.array([samples]), np.array([PERIOD]))
    assert found[0] / PERIOD == pytest.approx(low, abs=0.02)
    assert found[1] / PERIOD == pytest.approx(high, abs=0.025)


def test_without_any_period_there_is_no_interval() -> None:
    assert Sampled().confidence_interval(0.0) is None
    assert Sampled(-5, -1, 0.0, 0.0).confidence_interval(10.0) == (0, 37)
