"""The functions that a change of an operation's CPU went to."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from api.comparison.operations import OperationChange
from api.statistics.counts import share
from api.statistics.estimates import CONFIDENCE, Estimate, deviations, difference, product
from api.tree.functions import NOT_CODE, Function, FunctionRows
from api.tree.top_table import TopTable

SMALLEST_SHARE = 0.01
"""Functions with a smaller share on both sides are not compared: with fewer comparisons, each interval says more."""


@dataclass(frozen=True)
class FunctionChange:
    """The CPU that a function itself uses in one request, in nanoseconds."""

    function: Function
    now: float
    before: float
    growth: Estimate

    @property
    def is_sure(self) -> bool:
        return self.growth.excludes_zero


@dataclass(frozen=True)
class Spread:
    """How the change of an operation is spread over functions. All intervals hold together, with 95 %."""

    samples: tuple[int, int]  # now, and before
    functions: list[FunctionChange]  # what surely changed first, then by how much
    rest: float
    """The change of all others, in nanoseconds."""
    others: int


def spread_change(change: OperationChange, table: TopTable, functions: FunctionRows, samples: Sequence[int]) -> Spread:
    """`table` has the CPU of the functions now and before, `samples` the number of samples of both. A function has its
    share of the samples, of the CPU of one request."""
    totals, cpus = table.flat.sum(axis=1), [each for each in (change.cpu.now, change.cpu.before) if each]
    if len(cpus) < 2 or min(*totals, *samples) <= 0:
        return Spread((int(samples[0]), int(samples[1])), [], 0.0, 0)
    shares = np.clip(table.flat / totals[:, np.newaxis], 0, 1)
    is_code = table.groups >= len(NOT_CODE)
    compared = np.flatnonzero(is_code & (shares.max(axis=0) >= SMALLEST_SHARE)).tolist()
    z = deviations(CONFIDENCE, max(len(compared), 1))
    found = []
    for row in compared:
        now, before = (
            product(share(count * samples[side], samples[side], z), cpu.estimate(z))
            for side, (count, cpu) in enumerate(zip(shares[:, row].tolist(), cpus, strict=True))
        )
        function = functions[int(table.groups[row])]
        found.append(FunctionChange(function, now.value, before.value, difference(now, before)))
    found.sort(key=lambda each: (not each.is_sure, -abs(each.growth.value), each.function.name))
    rest = cpus[0].value - cpus[1].value - sum(each.growth.value for each in found)
    return Spread((int(samples[0]), int(samples[1])), found, rest, int(is_code.sum()) - len(found))
