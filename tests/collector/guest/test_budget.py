"""The CPU budget: within its limits whatever comes, and steady under a steady load."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.guest import budget
from collector.guest.budget import MIN_FREQUENCY_HZ, Budget

frequencies = st.integers(1, 10_000)
percents = st.floats(0.001, 1000)


@given(frequencies, percents, st.lists(st.floats(0, 1e6), max_size=100))
def test_whatever_it_costs_the_frequency_stays_between_one_and_what_was_asked_for(
    wanted: int, percent: float, costs: list[float]
) -> None:
    deciding = Budget(wanted, percent)
    for cost in costs:
        assert MIN_FREQUENCY_HZ <= deciding.update(cost) <= wanted


@given(frequencies, percents, st.floats(0, 1000), st.floats(0, 10), st.lists(st.floats(0, 1e6), max_size=20))
def test_under_a_steady_load_it_comes_to_rest_within_the_budget_and_uses_it(
    wanted: int, percent: float, base: float, of_a_hertz: float, before: list[float]
) -> None:
    """A cost that has a part that does not depend on the frequency, and one that does, after any past."""
    deciding = Budget(wanted, percent)
    for cost in before:
        deciding.update(cost)
    for _ in range(200):
        deciding.update(base + of_a_hertz * deciding.frequency_hz)
    rest = deciding.frequency_hz
    for _ in range(20):
        assert deciding.update(base + of_a_hertz * rest) == rest
    cost = base + of_a_hertz * rest
    assert cost <= percent or rest == MIN_FREQUENCY_HZ
    if rest < wanted:
        assert cost * (rest + max(1, rest // 4)) / rest > 0.89 * percent


@given(frequencies, st.lists(st.booleans(), max_size=50))
def test_one_window_above_the_budget_between_others_changes_nothing(wanted: int, quiet: list[bool]) -> None:
    deciding = Budget(wanted, 1.0)
    for _ in quiet:
        assert deciding.update(50.0) == wanted
        assert deciding.update(0.5) == wanted


def test_without_a_budget_nothing_changes() -> None:
    deciding = Budget(999, 0)
    assert {deciding.update(1e6) for _ in range(50)} == {999}


def test_a_load_that_passes_lowers_the_frequency_in_halves_and_raises_it_again_slowly() -> None:
    deciding = Budget(19, 1.0)
    assert [deciding.update(5.0) for _ in range(10)] == [19, 9, 9, 4, 4, 2, 2, 1, 1, 1]
    assert [deciding.update(0.1) for _ in range(24)][1::2] == [2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 19]


def test_windows_are_measured_after_the_start_and_begin_again_when_told() -> None:
    windows = budget.Windows(1000.0)
    assert windows.cost(1030.0, 30.0) is None
    assert windows.cost(1060.0, 31.0) is None  # the first begins here
    assert windows.cost(1080.0, 31.1) is None
    assert windows.cost(1100.0, 31.4) == pytest.approx(1.0)
    windows.begin_again()
    assert windows.cost(1131.0, 99.0) is None
    assert windows.cost(1161.0, 99.3) == pytest.approx(1.0)
