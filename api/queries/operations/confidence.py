"""How far sampled CPU may be from the CPU that was used: 95 % confidence intervals.

Samples are taken at moments that have nothing to do with the program, so their number is close to a Poisson variable,
and the exact interval of its mean is Garwood's (F. Garwood, Biometrika 28 (1936) 437). Samples of several hosts may
have different periods; then the sum is one of weighted Poisson variables, with the interval of M. P. Fay and
E. J. Feuer (Statistics in Medicine 16 (1997) 791), which is Garwood's where all periods are equal. Quantiles of the
chi-squared distribution are those of E. B. Wilson and M. M. Hilferty: N. E. Breslow and N. E. Day (Statistical Methods
in Cancer Research II, 1987, p. 69) call the result Byar's approximation. It misses on each side with a chance of at
most 2.6 % instead of 2.5 %.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import pyarrow as pa

from icestream.topics import DEFAULT_PROFILE_TYPE

FEW_SAMPLES = 10
"""With fewer samples, a graph shows chance: the confidence interval of 9 samples is from 4.1 to 17.1."""
SAMPLED_COLUMNS = (
    "sum(value) AS sampled_cpu, sum(count) AS samples, sum(if(count > 0, value / count * value, 0)) AS squares,"
    " max(if(count > 0, value / count, 0)) AS longest_period"
)
"""Sums over rows of `samples` or `trace_samples`; `sampled_rows` reads them."""
_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Sampled:
    """Samples of one profile type: their sum, and what its confidence interval depends on."""

    value: int = 0
    samples: int = 0
    squares: float = 0.0
    """The sum of the squared periods of the samples."""
    longest_period: float = 0.0

    def confidence_interval(self, period: float) -> tuple[int, int] | None:
        """The confidence interval of the value in nanoseconds; None if no period is known.

        `period` is that of samples of the same service, for where there was none here.
        """
        period = self.longest_period or period
        if period <= 0:
            return None
        low = self.value * _quantile(self.value**2 / self.squares, -_Z) if self.value > 0 and self.squares > 0 else 0.0
        with_one_more = max(self.value, 0) + period
        high = with_one_more * _quantile(with_one_more**2 / (self.squares + period**2), _Z)
        return math.floor(low), math.ceil(high)

    def as_json(self, period: float, profile_type: str) -> dict[str, Any]:
        """The members of an answer. Only CPU is sampled at even periods: other profile types have none."""
        low, high = (is_cpu(profile_type) and self.confidence_interval(period)) or (None, None)
        return {
            "sampled_cpu_ns": self.value,
            "sampled_cpu_low_ns": low,
            "sampled_cpu_high_ns": high,
            "samples": self.samples,
        }


def sampled_rows(answer: pa.Table) -> list[Sampled]:
    """The rows of an answer that has SAMPLED_COLUMNS."""
    columns = (answer[name].to_pylist() for name in ("sampled_cpu", "samples", "squares", "longest_period"))
    return [Sampled(*row) for row in zip(*columns, strict=True)]


def is_cpu(profile_type: str) -> bool:
    """Whether its values are CPU time, which the threads' clocks measure as well."""
    return profile_type == DEFAULT_PROFILE_TYPE


def _quantile(mean: float, z: float) -> float:
    """A quantile of a gamma variable with this mean and scale 1, as a multiple of the mean."""
    return float(max(1 - 1 / (9 * mean) + z / (3 * math.sqrt(mean)), 0.0) ** 3)
