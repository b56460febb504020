"""How much a mean has grown between two groups of requests, from their numbers, sums and sums of squares.

The confidence interval is that of B. L. Welch (Biometrika 34 (1947) 28) for the logarithm of the ratio of two means,
whose variance is, by the delta method, the sum of the squared coefficients of variation of both means. CPU and
durations have long tails, and the few requests in the tail make the mean: a small group may have met none of them, and
then its own variance is too small, too. So both groups get the larger coefficient of variation of the two.

It holds if requests are independent and their variance is finite. With 30 requests or more in each group, no more than
5 % of pairs of groups that are alike are said to differ: of normal, exponential, log-normal (sigma up to 1.5) and
Pareto (alpha 2.5) values, and of such that one in a hundred is 50 times as large as the others
(tests/api/statistics/test_means.py). What makes all requests of a group slower, such as a busy host, is a change, too.
"""

import math
from dataclasses import dataclass

from api.statistics.estimates import Estimate, student_deviations

MIN_COUNT = 30
"""With fewer values, the interval of a mean does not hold."""


@dataclass(frozen=True)
class Mean:
    """The mean of a group of values, none of which is negative."""

    value: float
    count: int
    variation: float
    """The squared coefficient of variation of one value: its variance / the squared mean."""
    samples: float = math.inf
    """By how many samples the sum of the values was measured; infinite: exactly."""

    @property
    def relative_variance(self) -> float:
        """The variance of the mean / its square."""
        return self.variation / self.count + 1 / self.samples

    def estimate(self, z: float) -> Estimate:
        factor = math.exp(z * math.sqrt(self.relative_variance))
        return Estimate(self.value, self.value / factor, self.value * factor)


def mean(count: int, total: float, squares: float) -> Mean:
    """The mean of `count` > 0 values with this sum and this sum of squares."""
    value = total / count
    if value <= 0 or count < 2:
        return Mean(value, count, 0.0)
    variance = max(squares / count - value * value, 0.0) * count / (count - 1)
    return Mean(value, count, variance / value**2)


def growth(now: Mean, before: Mean, z: float) -> Estimate | None:
    """now / before - 1; None if one of the means is 0, or if a group has too few values or samples to tell."""
    if min(now.value, before.value) <= 0 or min(now.count, before.count, now.samples, before.samples) < MIN_COUNT:
        return None
    variation = max(now.variation, before.variation)
    parts = [variation / each.count + 1 / each.samples for each in (now, before)]
    variance = sum(parts)
    squares = sum(part**2 / (each.count - 1) for part, each in zip(parts, (now, before), strict=True))
    freedom = variance**2 / squares if squares else math.inf
    half = student_deviations(z, freedom) * math.sqrt(variance)
    ratio = now.value / before.value
    return Estimate(ratio - 1, ratio * math.exp(-half) - 1, ratio * math.exp(half) - 1)
