"""Which of many changes between two sides the samples support."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from api.statistics.estimates import CONFIDENCE, deviations

FEWEST = 10
"""What has fewer samples on both sides together is never said to have changed."""
_Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Evidence:
    """What values of two sides, now and before, were measured by; neither side is empty."""

    totals: tuple[int, int]
    samples: tuple[int, int]
    scales: tuple[float, float] | None
    """Factors by which values are compared; None: they are compared by their shares of the totals."""

    def changed(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Whether the confidence intervals of the changes of `values` (2, n) exclude 0; together they hold with 95 %.

        The intervals are those of `api.statistics.counts` and `difference`.
        """
        totals, samples = (np.array(each, float)[:, np.newaxis] for each in (self.totals, self.samples))
        counts = np.maximum(values / totals * samples, 0)
        enough = counts.sum(axis=0) >= FEWEST
        z = deviations(CONFIDENCE, max(int(enough.sum()), 1))
        if self.scales is None:
            middle, low, high = _shares(counts, samples, z)
        else:
            size = totals / samples * np.array(self.scales)[:, np.newaxis]
            middle, low, high = (size * each for each in _means(counts, z))
        grown = middle[0] - middle[1]
        more = grown > np.hypot(middle[0] - low[0], high[1] - middle[1])
        less = -grown > np.hypot(high[0] - middle[0], middle[1] - low[1])
        supported: npt.NDArray[np.bool_] = enough & (more | less)
        return supported


class NothingChanged(Evidence):
    """Both sides are of no use for the question, whatever their samples support."""

    def changed(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return np.zeros(values.shape[1], bool)


def _shares(counts: _Numbers, samples: _Numbers, z: float) -> tuple[_Numbers, _Numbers, _Numbers]:
    p = np.minimum(counts / samples, 1.0)
    middle, scale = p + z * z / (2 * samples), 1 + z * z / samples
    half = z * np.sqrt(p * (1 - p) / samples + z * z / (4 * samples * samples))
    return p, np.clip((middle - half) / scale, 0, p), np.clip((middle + half) / scale, p, 1)


def _means(counts: _Numbers, z: float) -> tuple[_Numbers, _Numbers, _Numbers]:
    half = z * np.sqrt(counts + z * z / 4)
    return counts, np.maximum(counts + z * z / 2 - half, 0), counts + z * z / 2 + half
