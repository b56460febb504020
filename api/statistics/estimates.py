"""Estimates: values, and the confidence intervals that they lie in."""

import math
from dataclasses import dataclass
from statistics import NormalDist

CONFIDENCE = 0.95
"""With which the intervals that are shown together hold."""


@dataclass(frozen=True)
class Estimate:
    """A value, and the interval that it lies in with the confidence that was asked for."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> "Estimate":
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def deviations(confidence: float, comparisons: int) -> float:
    """How many standard deviations wide intervals are to each side, so that with this confidence all of them together
    hold (Bonferroni's correction)."""
    return NormalDist().inv_cdf(1 - (1 - confidence) / (2 * comparisons))


def student_deviations(z: float, freedom: float) -> float:
    """As many deviations of Student's t distribution as `z` are of the normal one: M. Abramowitz and I. A. Stegun,
    Handbook of Mathematical Functions, 26.7.5. With 10 degrees of freedom or more, it is within 1 % up to z = 4."""
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def difference(now: Estimate, before: Estimate) -> Estimate:
    """now - before, of two that are independent: R. G. Newcombe, Statistics in Medicine 17 (1998) 873, method 10, for
    shares; G. Zou and A. Donner, Statistics in Medicine 27 (2008) 1693, for others."""
    value = now.value - before.value
    low = value - math.hypot(now.value - now.low, before.high - before.value)
    high = value + math.hypot(now.high - now.value, before.value - before.low)
    return Estimate(value, low, high)


def product(one: Estimate, other: Estimate) -> Estimate:
    """one x other, of two that are independent and not negative, likewise."""
    low = math.hypot((one.value - one.low) * other.value, (other.value - other.low) * one.value)
    high = math.hypot((one.high - one.value) * other.value, (other.high - other.value) * one.value)
    value = one.value * other.value
    return Estimate(value, max(value - low, 0.0), value + high)
