"""The CPU budget: within its limits whatever comes, and steady under a steady load. The host is simulated."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.guest import budget
from collector.guest.budget import (
    MAX_SHED,
    MIN_FREQUENCY_HZ,
    BudgetLimits,
    Cost,
    Effort,
    at_its_lowest,
    decide,
    lowest_hz,
)
from collector.guest.pace import limits
from collector.settings import CollectorSettings

frequencies = st.integers(1, 10_000)
percents = st.floats(0.001, 1000)
costs = st.builds(Cost, st.floats(0, 1e6), st.floats(0, 1e6))
QUIET = Cost(0.0, 0.0)


@dataclass(frozen=True)
class Host:
    """What the collector costs there, in per cent of one CPU."""

    of_a_hertz: float
    other: tuple[float, ...]  # what does not depend on the rate, by level

    def cost(self, effort: Effort) -> Cost:
        return Cost(self.of_a_hertz * effort.frequency_hz, self.other[effort.shed])


def running(host: Host, bounds: BudgetLimits, effort: Effort | None = None) -> Iterator[Effort]:
    """The effort after each measurement."""
    effort = effort or Effort(bounds.wanted_hz)
    while True:
        yield (effort := decide(bounds, effort, host.cost(effort)))


def bounds_of(wanted_hz: int, percent: float) -> BudgetLimits:
    return BudgetLimits(wanted_hz, percent, lowest_hz(wanted_hz))


hosts = st.builds(
    lambda hertz, other, kept: Host(hertz, (other, other * kept[0], other * kept[0] * kept[1])),
    st.floats(0, 10), st.floats(0, 1000), st.tuples(st.floats(0, 1), st.floats(0, 1)),
)  # fmt: skip


@given(frequencies, percents, st.lists(costs, max_size=100))
def test_whatever_it_costs_the_effort_stays_in_its_bounds(wanted: int, percent: float, costs: list[Cost]) -> None:
    effort = Effort(wanted)
    for cost in costs:
        effort = decide(bounds_of(wanted, percent), effort, cost)
        assert MIN_FREQUENCY_HZ <= effort.frequency_hz <= wanted
        assert 0 <= effort.shed <= MAX_SHED


@given(frequencies, percents, hosts, st.lists(costs, max_size=20))
def test_under_a_steady_load_the_rate_comes_to_rest_within_the_budget_or_at_its_bound(
    wanted: int, percent: float, host: Host, before: list[Cost]
) -> None:
    bounds = bounds_of(wanted, percent)
    effort = Effort(wanted)
    for cost in before:
        effort = decide(bounds, effort, cost)
    later = list(islice(running(host, bounds, effort), 400, 500))
    for effort in later:
        cost = host.cost(effort)
        samples_alone_fit = host.of_a_hertz * max(1, bounds.lowest_hz) <= 0.85 * percent
        if samples_alone_fit:
            assert effort.frequency_hz >= bounds.lowest_hz
        if effort.frequency_hz < wanted and effort.shed == MAX_SHED and effort.frequency_hz > bounds.lowest_hz:
            assert cost.percent <= percent or not host.of_a_hertz or effort.over <= budget.IN_A_ROW
    changes = sum(a.frequency_hz != b.frequency_hz for a, b in pairwise(later))
    assert changes <= 20


@given(frequencies, st.lists(st.booleans(), max_size=50))
def test_one_measurement_above_the_budget_between_others_changes_nothing(wanted: int, quiet: list[bool]) -> None:
    bounds, effort = bounds_of(wanted, 1.0), Effort(wanted)
    for _ in quiet:
        effort = decide(bounds, decide(bounds, effort, Cost(20.0, 30.0)), Cost(0.3, 0.3))
        assert (effort.frequency_hz, effort.shed) == (wanted, 0)


def test_without_a_budget_nothing_changes() -> None:
    effort = Effort(999)
    for _ in range(50):
        effort = decide(bounds_of(999, 0), effort, Cost(1e6, 1e6))
    assert effort == Effort(999)


def test_beside_a_build_with_many_short_lived_processes_49_hertz_stay_above_24() -> None:
    """As it was measured on two CPUs: most of the cost does not depend on the rate."""
    host = Host(of_a_hertz=0.03, other=(6.0, 4.5, 2.0))
    efforts = list(islice(running(host, bounds_of(49, 2.0)), 100))
    assert min(effort.frequency_hz for effort in efforts) == 25
    assert efforts[7].shed == MAX_SHED  # four minutes after the start of a build
    assert at_its_lowest(efforts[-1])


def test_what_does_not_depend_on_the_rate_is_shed_before_the_rate_is_lowered() -> None:
    host = Host(of_a_hertz=0.03, other=(3.0, 1.2, 0.4))
    efforts = list(islice(running(host, bounds_of(49, 2.0)), 20))
    assert {effort.frequency_hz for effort in efforts} == {49}
    assert [effort.shed for effort in efforts[:6]] == [0, 1, 1, 2, 2, 2]


def test_only_samples_that_cost_too_much_lower_the_rate_below_its_bound() -> None:
    efforts = list(islice(running(Host(of_a_hertz=0.2, other=(0.1, 0.1, 0.1)), bounds_of(49, 2.0)), 30))
    assert efforts[-1].frequency_hz == 10
    efforts = list(islice(running(Host(of_a_hertz=0.01, other=(50.0, 50.0, 50.0)), bounds_of(49, 2.0)), 30))
    assert efforts[-1].frequency_hz == 25
    assert at_its_lowest(efforts[-1])


def test_a_rate_below_its_bound_rises_to_it_when_samples_cost_less_again() -> None:
    bounds = bounds_of(49, 2.0)
    *_, low = islice(running(Host(0.5, (9.0, 9.0, 9.0)), bounds), 30)
    assert low.frequency_hz == 4
    *_, high = islice(running(Host(0.01, (9.0, 9.0, 9.0)), bounds, low), 60)
    assert high.frequency_hz == 25


def test_a_load_that_passes_first_gives_the_rate_back_and_then_the_rest() -> None:
    bounds = bounds_of(49, 2.0)
    *_, busy = islice(running(Host(0.03, (6.0, 4.5, 2.0)), bounds), 20)
    after = list(islice(running(Host(0.005, (0.1, 0.1, 0.1)), bounds, busy), 60))
    first_full = next(i for i, effort in enumerate(after) if effort.frequency_hz == 49)
    assert all(effort.shed == MAX_SHED for effort in after[:first_full])
    assert (after[-1].frequency_hz, after[-1].shed) == (49, 0)


def test_work_that_is_too_much_whenever_it_is_taken_up_is_tried_ever_more_rarely() -> None:
    efforts = list(islice(running(Host(0.005, (3.0, 0.5, 0.1)), bounds_of(49, 2.0)), 400))
    changes = [i for i, (a, b) in enumerate(pairwise(efforts)) if a.shed != b.shed]
    assert len([i for i in changes if i < 100]) > len([i for i in changes if i >= 300])
    assert len([i for i in changes if i >= 300]) <= 8


def test_work_that_was_put_off_is_taken_up_where_a_quarter_of_the_budget_is_unused() -> None:
    efforts = list(islice(running(Host(0.001, (1.4, 1.3, 1.2)), bounds_of(49, 2.0), Effort(49, shed=MAX_SHED)), 20))
    assert efforts[-1].shed == 0


def test_the_bound_is_half_of_the_rate_or_10_hertz_or_as_chosen() -> None:
    assert [lowest_hz(hz) for hz in (1, 9, 19, 49, 99, 999)] == [1, 9, 10, 25, 50, 500]
    assert [lowest_hz(99, chosen) for chosen in (1, 20, 200)] == [1, 20, 99]


def test_the_budget_is_a_part_of_all_cpus() -> None:
    settings = CollectorSettings()  # type: ignore[call-arg]
    assert [limits(settings, cpus).percent for cpus in (1, 2, 64)] == [1.0, 2.0, 64.0]


def test_the_cost_is_measured_after_the_start_and_begins_again_when_told() -> None:
    meter = budget.CostMeter(1000.0)
    assert meter.cost(1030.0, 20.0, 10.0) is None
    assert meter.cost(1060.0, 20.5, 10.5) is None  # the first begins here
    assert meter.cost(1080.0, 20.6, 10.5) is None
    cost = meter.cost(1100.0, 20.7, 10.7)
    assert cost is not None
    assert (cost.by_rate, cost.other, cost.percent) == pytest.approx((0.5, 0.5, 1.0))
    meter.begin_again()
    assert meter.cost(1131.0, 90.0, 9.0) is None
    cost = meter.cost(1161.0, 90.3, 8.0)
    assert cost is not None
    assert (cost.by_rate, cost.other) == pytest.approx((1.0, 0.0))
