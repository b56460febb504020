"""Counts runtimes whose frames cannot be read, by reason."""

import logging
from collections import Counter

from collector import metrics

log = logging.getLogger(__name__)

MAX_REASONS = 32
"""Each reason makes a series of a metric."""


class Refusals:
    """Counts those of one runtime: `counted` is how many files were refused, by reason."""

    def __init__(self, runtime: str) -> None:
        self._runtime = runtime
        self.counted: Counter[str] = Counter()

    def add_error(self, error: Exception) -> None:
        """Adds what was wrong with a file."""
        self.add(f"the file cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error))

    def add(self, reason: str) -> None:
        """Logs each reason once."""
        if reason not in self.counted and len(self.counted) >= MAX_REASONS:  # a file says which version it is
            reason = "other reasons"
        self.counted[reason] += 1
        metrics.RUNTIMES_REFUSED.labels(self._runtime, reason).inc()
        if self.counted[reason] == 1:
            log.info("the functions of a %s runtime are not shown: %s", self._runtime, reason)
