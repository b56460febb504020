"""What would tell where a comparison does not: how much longer to sample, or how much more often.

Intervals shrink with the root of the number of requests and samples. What there is, is taken to be as large as it
seems: so the times are rough.
"""

import math

from api.comparison.functions import Spread
from api.comparison.operations import ALIKE, OperationChange
from api.statistics.estimates import Estimate
from api.statistics.means import MIN_COUNT

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))
_MOST_OFTEN = 10
"""More than so many times the present frequency is no advice."""


def to_compare(change: OperationChange) -> str:
    """What gives both sides enough requests, and enough samples where clocks do not measure them."""
    names = ["requests"] if change.by_clock else ["requests", "samples"]
    counts = [row[name] for row in (change.now, change.before) if row for name in names]
    return _longer(change, MIN_COUNT / max(min(counts), 1))


def to_be_certain(change: OperationChange, grown: Estimate) -> str:
    """What says of the CPU of a request that it changed, or that it is the same."""
    wanted = max(abs(grown.value), ALIKE - abs(grown.value))
    return _longer(change, ((grown.high - grown.low) / 2 / wanted) ** 2)


def to_find_functions(change: OperationChange, spread: Spread) -> str:
    """What makes the change of the function certain that seems to have changed most."""
    growth = spread.functions[0].growth if spread.functions else Estimate(0, 0, 0)
    if not growth.value:
        return "; sample for longer, or at a higher frequency"
    half = growth.value - growth.low if growth.value > 0 else growth.high - growth.value
    factor = (half / growth.value) ** 2
    often = math.ceil(factor)
    return _longer(change, factor) + (f", or {often} times the frequency" if 1 < often <= _MOST_OFTEN else "")


def _longer(change: OperationChange, factor: float) -> str:
    """The time that is missing, if both sides had `factor` times theirs; nothing if they have enough."""
    rows = [row for row in (change.now, change.before) if row and row["requests_per_second"]]
    more = (factor - 1) * max((row["requests"] / row["requests_per_second"] for row in rows), default=0)
    if more <= 0:
        return ""
    size, unit = next(((size, unit) for size, unit in _UNITS if more >= 2 * size), _UNITS[-1])
    count = math.ceil(more / size)
    return f"; about {count} more {unit}{'' if count == 1 else 's'} of each side would tell"
