"""What a number of samples says of what was sampled: confidence intervals of shares, rates, and their changes.

Samples are taken at moments that have nothing to do with the program, so the samples of a function are close to a
Poisson count: binomial if the number of all samples is given. The intervals are score intervals, which hold for
functions with few samples or none:

- a share: E. B. Wilson, J. Am. Stat. Assoc. 22 (1927) 209;
- a count: the same for a Poisson variable (G. Rao and L. Kulldorff's score interval, x + z²/2 ± z sqrt(x + z²/4));
- a difference of two of them: R. G. Newcombe, Statistics in Medicine 17 (1998) 873, method 10; G. Zou and A. Donner,
  Statistics in Medicine 27 (2008) 1693 for others than shares;
- a ratio of two counts: J. Przyborowski and H. Wilenski, Biometrika 31 (1940) 313: given their sum, the first count is
  binomial.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True)
class Estimate:
    """A value, and the interval that it lies in with the confidence that was asked for."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> "Estimate":
        return Estimate(self.value * factor, self.low * factor, self.high * factor)


def deviations(confidence: float, comparisons: int) -> float:
    """How many standard deviations wide intervals are to each side, so that with this confidence all of them together
    hold (Bonferroni's correction)."""
    return NormalDist().inv_cdf(1 - (1 - confidence) / (2 * comparisons))


def share(count: float, samples: float, z: float) -> Estimate:
    """The share that a function has, which has `count` of `samples` > 0."""
    p = min(max(count / samples, 0.0), 1.0)
    middle = p + z * z / (2 * samples)
    half = z * math.sqrt(p * (1 - p) / samples + z * z / (4 * samples * samples))
    scale = 1 + z * z / samples
    return Estimate(p, min(p, max((middle - half) / scale, 0.0)), max(p, min((middle + half) / scale, 1.0)))


def mean_count(count: float, z: float) -> Estimate:
    """The mean of a Poisson variable that was `count` once."""
    count = max(count, 0.0)
    half = z * math.sqrt(count + z * z / 4)
    return Estimate(count, max(count + z * z / 2 - half, 0.0), count + z * z / 2 + half)


def difference(now: Estimate, before: Estimate) -> Estimate:
    """now - before, of two that are independent."""
    value = now.value - before.value
    low = value - math.hypot(now.value - now.low, before.high - before.value)
    high = value + math.hypot(now.high - now.value, before.value - before.low)
    return Estimate(value, low, high)


def ratio(now: float, before: float, z: float) -> Estimate:
    """The ratio of the means of two Poisson variables that were `now` and `before`, both > 0."""
    part = share(now, now + before, z)
    return Estimate(now / before, part.low / (1 - part.low), part.high / (1 - part.high))
