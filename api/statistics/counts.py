"""What a number of samples says of what was sampled: confidence intervals of shares and rates.

Samples are taken at moments that have nothing to do with the program, so the samples of a function are close to a
Poisson count: binomial if the number of all samples is given. The intervals are score intervals, which hold for
functions with few samples or none:

- a share: E. B. Wilson, J. Am. Stat. Assoc. 22 (1927) 209;
- a count: the same for a Poisson variable (G. Rao and L. Kulldorff's score interval, x + z²/2 ± z sqrt(x + z²/4));
- a ratio of two counts: J. Przyborowski and H. Wilenski, Biometrika 31 (1940) 313: given their sum, the first count is
  binomial.
"""

import math

from api.statistics.estimates import Estimate


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


def ratio(now: float, before: float, z: float) -> Estimate:
    """The ratio of the means of two Poisson variables that were `now` and `before`, both > 0."""
    part = share(now, now + before, z)
    return Estimate(now / before, part.low / (1 - part.low), part.high / (1 - part.high))
