"""Means of two groups are said to differ if they do, and otherwise in one case of twenty at most."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from api.statistics.estimates import deviations, student_deviations
from api.statistics.means import MIN_COUNT, Mean, growth, mean

Z = deviations(0.95, 1)
TRIALS = 1_000
Floats = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]
ALIKE: dict[str, Draw] = {
    "normal": lambda random, count: np.abs(random.normal(20, 6, count)),
    "exponential": lambda random, count: random.exponential(20, count),
    "log-normal": lambda random, count: random.lognormal(3, 1.5, count),
    "Pareto": lambda random, count: random.pareto(2.5, count) + 1,
    "one in a hundred": lambda random, count: (
        random.lognormal(3, 0.2, count) * np.where(random.random(count) < 0.01, 50, 1)
    ),
}


def mean_of(values: Floats) -> Mean:
    return mean(len(values), float(values.sum()), float((values**2).sum()))


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(30, 30), (30, 300), (3000, 30), (1000, 1000), (1000, 4000)])
@pytest.mark.parametrize("kind", ALIKE)
def test_groups_that_are_alike_are_said_to_differ_in_one_case_of_twenty_at_most(
    kind: str, sizes: tuple[int, int]
) -> None:
    random = np.random.default_rng(sizes)
    found = [growth(*(mean_of(ALIKE[kind](random, size)) for size in sizes), Z) for _ in range(TRIALS)]
    differ = sum(1 for each in found if each is None or each.excludes_zero)
    assert differ <= 0.05 * TRIALS + 2 * math.sqrt(0.05 * TRIALS)


@pytest.mark.parametrize("kind", ALIKE)
def test_the_interval_has_the_true_growth_and_becomes_narrow(kind: str) -> None:
    random, missed = np.random.default_rng(5), 0
    for _ in range(300):
        found = growth(mean_of(1.3 * ALIKE[kind](random, 2000)), mean_of(ALIKE[kind](random, 2000)), Z)
        assert found is not None
        missed += not found.low <= 0.3 <= found.high
    assert missed <= 300 * 0.05 + 2 * math.sqrt(300 * 0.05)


def test_thirty_percent_of_two_thousand_requests_are_known_to_two_percent() -> None:
    random = np.random.default_rng(3)
    found = growth(mean_of(random.normal(31.1, 10, 2000)), mean_of(random.normal(26.2, 9, 2000)), Z)
    assert found is not None
    assert 0.15 < found.low < 0.187 < found.high < 0.23


def test_in_the_other_direction_the_interval_is_the_inverse() -> None:
    now, before = Mean(31.0, 500, 0.4), Mean(26.0, 900, 0.3)
    there, back = growth(now, before, Z), growth(before, now, Z)
    assert there is not None
    assert back is not None
    assert (1 + there.low) * (1 + back.high) == pytest.approx(1)
    assert (1 + there.high) * (1 + back.low) == pytest.approx(1)


def test_too_few_values_or_samples_say_nothing() -> None:
    many, few = Mean(20.0, MIN_COUNT, 0.1), Mean(40.0, MIN_COUNT - 1, 0.1)
    assert growth(few, many, Z) is None
    assert growth(many, few, Z) is None
    assert growth(many, Mean(40.0, 1000, 0.1, samples=3), Z) is None
    assert growth(many, Mean(0.0, 1000, 0.0), Z) is None
    assert growth(many, many, Z) is not None


def test_values_that_are_all_the_same_have_an_exact_mean() -> None:
    found = growth(mean(100, 3000, 90_000), mean(100, 2000, 40_000), Z)
    assert found is not None
    assert (found.low, found.high) == (pytest.approx(0.5), pytest.approx(0.5))


@pytest.mark.parametrize(
    ("freedom", "confidence", "quantile"),
    [(10, 0.95, 2.2281), (29, 0.95, 2.0452), (29, 0.999, 3.6594), (58, 0.99, 2.6633), (1e9, 0.95, 1.95996)],
)
def test_deviations_are_those_of_the_table_of_student(freedom: float, confidence: float, quantile: float) -> None:
    assert student_deviations(deviations(confidence, 1), freedom) == pytest.approx(quantile, rel=1e-3)
