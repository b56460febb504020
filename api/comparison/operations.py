"""Operations of two sides, compared by what one request costs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from api.statistics.counts import share
from api.statistics.estimates import CONFIDENCE, Estimate, deviations, difference
from api.statistics.means import MIN_COUNT, Mean, growth, mean

ALIKE = 0.05
"""A change by less than this share is none, if the interval says so."""
MOST_UNSURE = 4
"""An interval whose ends differ by a larger factor tells nothing, and is not shown."""
Row = dict[str, Any]
"""A row of `api.queries.operations.operations.Operations`, with `requests_per_second`."""


class ChangeStatus(StrEnum):
    CHANGED = "changed"  # the confidence interval excludes 0
    UNSURE = "unsure"
    NEW = "new"
    GONE = "gone"
    SAME = "same"  # the interval has 0, and nothing beyond ALIKE


_ORDER = list(ChangeStatus)


@dataclass(frozen=True)
class CostChange:
    """The CPU or the duration of one request, in nanoseconds, and by which share it grew."""

    now: Mean | None
    before: Mean | None
    growth: Estimate | None
    status: ChangeStatus


@dataclass(frozen=True)
class ErrorChange:
    """The share of requests that failed, and by how much it grew."""

    growth: Estimate | None
    status: ChangeStatus


@dataclass(frozen=True)
class OperationChange:
    """An operation that one side has, or both."""

    now: Row | None
    before: Row | None
    by_clock: bool
    """Whether its CPU is that of the threads' clocks; else it is that of the samples."""
    cpu: CostChange
    duration: CostChange
    errors: ErrorChange

    @property
    def row(self) -> Row:
        row = self.now or self.before
        assert row is not None
        return row

    @property
    def operation(self) -> str:
        return str(self.row["operation"])

    @property
    def status(self) -> ChangeStatus:
        """That of its CPU."""
        return self.cpu.status

    @property
    def cpus(self) -> float:
        """How many CPUs the change makes, at the rate of requests of now."""
        if self.now is None or self.cpu.now is None or self.cpu.before is None:
            return 0.0
        return (self.cpu.now.value - self.cpu.before.value) * float(self.now["requests_per_second"]) / 1e9


def compare_operations(now: Sequence[Row], before: Sequence[Row]) -> tuple[list[OperationChange], int]:
    """Returns the operations with requests on any side, and how many are on both with enough requests to be compared:
    with a confidence of 95 %, all intervals of their CPU hold together; so do those of durations, and of errors.

    Changes come first, the one that makes most CPUs before the others; then what is not sure, new, gone and the same.
    """
    pairs = _pairs([row for row in now if row["requests"]], [row for row in before if row["requests"]])
    changes, comparisons = _compare(pairs)
    changes.sort(key=lambda each: (_ORDER.index(each.status), -abs(each.cpus), -each.row["requests"], each.operation))
    return changes, comparisons


def compare_with_before(rows: Sequence[Row]) -> list[OperationChange | None]:
    """Likewise, each row with what it has of the period before (`previous_...`), in the same order; None where there
    were no requests in either."""
    pairs = [(row if row["requests"] else None, _previous(row) if row["previous_requests"] else None) for row in rows]
    found = iter(_compare([pair for pair in pairs if any(pair)])[0])
    return [next(found) if any(pair) else None for pair in pairs]


def _previous(row: Row) -> Row:
    prefix = "previous_"
    of_before = {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}
    return row | of_before


def _compare(pairs: Sequence[tuple[Row | None, Row | None]]) -> tuple[list[OperationChange], int]:
    """Returns the changes in the order of the pairs, and the number of comparisons."""
    comparisons = sum(1 for a, b in pairs if a and b and min(a["requests"], b["requests"]) >= MIN_COUNT)
    z = deviations(CONFIDENCE, max(comparisons, 1))
    return [_change(a, b, z) for a, b in pairs], comparisons


def cpu_of_one_request(now: Sequence[Row], before: Sequence[Row]) -> tuple[float, float] | None:
    """The CPU of one request of each side, in nanoseconds: of the threads' clocks, or else of the samples. None if a
    side has no requests."""
    of_clock, of_samples = ("request_cpu_ns", "measured"), ("sampled_cpu_ns", "requests")
    value, count = (
        of_clock if all(_is_measured(*_sums(side, "measured", "requests")) for side in (now, before)) else of_samples
    )
    sums = [_sums(side, value, count) for side in (now, before)]
    if not all(requests for _, requests in sums):
        return None
    (of_now, n), (of_before, m) = sums
    return of_now / n, of_before / m


def _sums(rows: Sequence[Row], *names: str) -> list[int]:
    return [sum(row[name] for row in rows) for name in names]


def _is_measured(measured: int, requests: int) -> bool:
    """Whether the clocks measured enough requests."""
    return measured >= min(MIN_COUNT, requests)


def _pairs(now: Sequence[Row], before: Sequence[Row]) -> list[tuple[Row | None, Row | None]]:
    """By their names, and by their services if one side has several."""
    several = any(len({row["service"] for row in side}) > 1 for side in (now, before))
    of_now, of_before = (
        {(row["service"] if several else "", row["operation"]): row for row in side} for side in (now, before)
    )
    return [(of_now.get(each), of_before.get(each)) for each in sorted({*of_now, *of_before})]


def _change(now: Row | None, before: Row | None, z: float) -> OperationChange:
    by_clock = all(row is None or _is_measured(row["measured"], row["requests"]) for row in (now, before))
    cpu = _cpu_by_clock if by_clock else _cpu_by_samples
    return OperationChange(
        now, before, by_clock, _cost(now, before, cpu, z), _cost(now, before, _duration, z), _errors(now, before, z)
    )


def _cost(now: Row | None, before: Row | None, mean_of: Callable[[Row], Mean], z: float) -> CostChange:
    of_now, of_before = (mean_of(row) if row else None for row in (now, before))
    grown = growth(of_now, of_before, z) if of_now and of_before else None
    if grown and grown.high + 1 > MOST_UNSURE * (grown.low + 1):
        grown = None
    return CostChange(of_now, of_before, grown, _status(now, before, grown, ALIKE))


def _status(now: object, before: object, grown: Estimate | None, alike: float) -> ChangeStatus:
    if not before:
        return ChangeStatus.NEW
    if not now:
        return ChangeStatus.GONE
    if grown is None:
        return ChangeStatus.UNSURE
    if grown.excludes_zero:
        return ChangeStatus.CHANGED
    return ChangeStatus.SAME if -alike <= grown.low and grown.high <= alike else ChangeStatus.UNSURE


def _cpu_by_clock(row: Row) -> Mean:
    return mean(row["measured"], row["request_cpu_ns"], row["request_cpu_squares"])


def _cpu_by_samples(row: Row) -> Mean:
    """Samples do not say how the CPU of requests differs: it is taken to differ as their durations do."""
    samples = max(row["samples"], 0)
    value = max(row["sampled_cpu_ns"], 0) / row["requests"]
    return Mean(value, row["requests"], _duration(row).variation, samples or 1)


def _duration(row: Row) -> Mean:
    return mean(row["requests"], row["request_duration_ns"], row["request_duration_squares"])


def _errors(now: Row | None, before: Row | None, z: float) -> ErrorChange:
    grown = None
    if now and before and min(now["requests"], before["requests"]) >= MIN_COUNT:
        grown = difference(*(share(row["errors"], row["requests"], z) for row in (now, before)))
    return ErrorChange(grown, _status(now, before, grown, ALIKE))
