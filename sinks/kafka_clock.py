"""The time by which old rows and files are deleted: Kafka's. The clock of this machine may be wrong by weeks."""

import logging
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

Now = Callable[[], float | None]
"""Returns the time by which something is deleted, Unix seconds; None: it is not known yet, so nothing is."""
_WARN_S = 86_400.0


class KafkaClock:
    """Kafka's time: the newest timestamp of a message that this process has read, and the time since it was read.

    So time goes on when no messages come. All sinks of a process share one.
    """

    def __init__(self) -> None:
        self._ahead_s = float("-inf")
        """By how much Kafka's clock is ahead of the monotonic one, Unix seconds."""
        self._warned = False

    def note(self, timestamp_ms: int) -> None:
        """Notes the timestamp of a message that was read just now; below 1: it has none."""
        if timestamp_ms > 0:
            self._ahead_s = max(self._ahead_s, timestamp_ms / 1000 - time.monotonic())

    def now(self) -> float | None:
        """Returns Kafka's time, or this machine's if that is earlier; None before the first message."""
        if self._ahead_s == float("-inf"):
            return None
        own, kafkas = time.time(), self._ahead_s + time.monotonic()
        if own - kafkas > _WARN_S and not self._warned:
            self._warned = True
            log.warning(
                "the newest message read from Kafka is %.1f days old by the clock of this machine: old rows and files"
                " are deleted by Kafka's time",
                (own - kafkas) / 86_400,
            )
        return min(own, kafkas)
