"""How much the collector does, so that it stays within its budget of CPU: a plain function of measurements of its cost.

Every `MEASUREMENT_S` seconds its cost is compared with the budget, in two parts: what depends on the sampling rate, and
what does not. When two measurements in a row are above the budget, work that does not depend on the rate is shed first,
one level at a time. The rate is lowered when all of that is shed, or when the samples alone cost more than the budget.
It does not fall below `BudgetLimits.lowest_hz` unless the samples alone would cost more than the budget there: below
that bound, only a cost that depends on the rate is a reason to sample less.

Two measurements in a row with room raise the rate by a quarter, and then take up shed work again. Each time that work
has to be shed, it takes twice as many measurements with room until it is taken up again.
"""

import math
from dataclasses import dataclass, replace

MEASUREMENT_S = 30.0
WARM_UP_S = 60.0
"""After the start, when the collector reads once what every process maps."""

MIN_FREQUENCY_HZ = 1
GOOD_FREQUENCY_HZ = 10
IN_A_ROW = 2
MAX_SHED = 2
_ROOM = 0.9  # part of the budget that a higher rate may cost
_AMPLE_ROOM = 0.75  # part of the budget below which shed work is taken up again
_MOST_PATIENCE = 32


@dataclass(frozen=True)
class BudgetLimits:
    """`lowest_hz` is the bound below which only the cost of samples lowers the rate."""

    wanted_hz: int
    percent: float  # of one CPU; 0: no limit
    lowest_hz: int


@dataclass(frozen=True)
class Cost:
    """What the collector took in one measurement, in per cent of one CPU."""

    by_rate: float  # what depends on the rate: the eBPF programs, reading samples, making batches
    other: float

    @property
    def percent(self) -> float:
        return self.by_rate + self.other


@dataclass(frozen=True)
class Effort:
    """How much the collector does, and what it remembers of the last measurements."""

    frequency_hz: int
    shed: int = 0  # 0: nothing; 1: details of new processes; 2: decoding events of processes at once, too
    over: int = 0  # measurements in a row above the budget
    under: int = 0  # measurements in a row with room
    patience: int = IN_A_ROW  # measurements with room until shed work is taken up again


def lowest_hz(wanted_hz: int, chosen_hz: int = 0) -> int:
    """The bound for a wanted rate: as chosen, else half of it, or 10 Hz if that is more."""
    return min(wanted_hz, chosen_hz or max(-(-wanted_hz // 2), GOOD_FREQUENCY_HZ))


def decide(limits: BudgetLimits, effort: Effort, cost: Cost) -> Effort:
    """The effort from now on, after `cost` was measured with `effort`."""
    if limits.percent <= 0:
        return effort
    hz = effort.frequency_hz
    higher = min(limits.wanted_hz, max(math.floor(hz * 1.25), hz + 1))
    room = higher > hz and _costs_at(higher, effort, cost) <= _ROOM * limits.percent
    too_low = hz < min(limits.lowest_hz, _alone_hz(limits, effort, cost, _ROOM))
    ample = higher == hz and cost.percent <= _AMPLE_ROOM * limits.percent
    over = effort.over + 1 if cost.percent > limits.percent else 0
    under = effort.under + 1 if room or too_low or ample else 0
    effort = replace(effort, over=over, under=under)
    if under >= IN_A_ROW and (room or too_low):
        return replace(effort, frequency_hz=higher, over=0, under=0)
    if ample and under >= effort.patience:
        if effort.shed:
            return replace(effort, shed=effort.shed - 1, over=0, under=0)
        return replace(effort, under=0, patience=IN_A_ROW)
    return _less(limits, effort, cost) if over >= IN_A_ROW else effort


def at_its_lowest(effort: Effort) -> bool:
    """Whether nothing more can be shed, and the cost is above the budget all the same."""
    return effort.over >= IN_A_ROW and effort.shed == MAX_SHED


def _less(limits: BudgetLimits, effort: Effort, cost: Cost) -> Effort:
    """Sheds work, lowers the rate, or both."""
    shed, hz = effort.shed, effort.frequency_hz
    if shed == MAX_SHED or cost.by_rate > limits.percent:
        hz = min(hz, max(hz // 2, _affordable_hz(limits, effort, cost), MIN_FREQUENCY_HZ))
    shed = min(shed + 1, MAX_SHED)
    if (hz, shed) == (effort.frequency_hz, effort.shed):
        return effort
    patience = min(2 * effort.patience, _MOST_PATIENCE) if shed > effort.shed else effort.patience
    return replace(effort, frequency_hz=hz, shed=shed, over=0, under=0, patience=patience)


def _affordable_hz(limits: BudgetLimits, effort: Effort, cost: Cost) -> int:
    """The highest rate that fits into the budget; not below the bound, if samples at the bound would fit alone."""
    if cost.by_rate <= 0:
        return effort.frequency_hz
    fits = max(0.0, limits.percent - cost.other) / cost.by_rate * effort.frequency_hz
    return max(math.floor(min(limits.wanted_hz, fits)), min(limits.lowest_hz, _alone_hz(limits, effort, cost)))


def _alone_hz(limits: BudgetLimits, effort: Effort, cost: Cost, part: float = 1.0) -> int:
    """The highest rate whose samples alone fit into that part of the budget."""
    if cost.by_rate <= 0:
        return limits.wanted_hz
    return math.floor(min(limits.wanted_hz, part * limits.percent / cost.by_rate * effort.frequency_hz))


def _costs_at(hz: int, effort: Effort, cost: Cost) -> float:
    return cost.other + cost.by_rate * hz / effort.frequency_hz


class CostMeter:
    """Makes readings of CPU time at any moment into measurements of the cost, each over at least `MEASUREMENT_S`."""

    def __init__(self, now: float) -> None:
        """`now`: time.monotonic()."""
        self._not_before = now + WARM_UP_S
        self._began: tuple[float, float, float] | None = None

    def cost(self, now: float, by_rate_s: float, other_s: float) -> Cost | None:
        """The cost if a measurement ends now, else None. Takes CPU seconds since the start, as `Cost` divides them."""
        if now < self._not_before:
            return None
        if self._began is None:
            self._began = now, by_rate_s, other_s
            return None
        began, by_rate_before, other_before = self._began
        if (took := now - began) < MEASUREMENT_S:
            return None
        self._began = now, by_rate_s, other_s
        return Cost(
            max(0.0, 100 * (by_rate_s - by_rate_before) / took), max(0.0, 100 * (other_s - other_before) / took)
        )

    def begin_again(self) -> None:
        """The next measurement begins at the next reading, because the conditions have changed."""
        self._began = None
