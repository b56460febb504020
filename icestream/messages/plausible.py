"""Which times a message may hold: those near the time at which Kafka got the message.

An absurd time would cost every reader after it: each day is a partition of a table, and the latest time of a host
decides what is forgotten of it. The comparison is with Kafka's timestamp of the message, not with the clock of the
reader. So a message is judged in the same way today, by a replay in a year, and by every part.
"""

from dataclasses import dataclass

import numpy as np

from icestream.messages.checks import BadMessage
from icestream.settings import MessageSettings
from icestream.times import DAY_NS, HOUR_NS, MAX_UNIX_NANO, format_unix_nano

MAX_SPREAD_NS = DAY_NS
"""The times of one message lie within a day, so its rows lie in two partitions of a table at most."""
MAX_LAG_NS = 30 * DAY_NS
"""How long after its input an output may be published: longer than Kafka keeps the input."""


@dataclass(frozen=True)
class Times:
    """The moments that a message may name, Unix nanoseconds: `first` to `last`."""

    first: int = 0
    last: int = MAX_UNIX_NANO - 1

    def check(self, name: str, unix_nano: int) -> None:
        """Raises BadMessage."""
        if not self.first <= unix_nano <= self.last:
            raise BadMessage(
                name, f"expected a time from {_text(self.first)} to {_text(self.last)}, got {_text(unix_nano)}"
            )

    def check_or_zero(self, name: str, unix_nano: int) -> None:
        """Like `check`, for a time that may be missing. Raises BadMessage."""
        if unix_nano:
            self.check(name, unix_nano)

    def check_column(self, name: str, unix_nano: np.ndarray) -> None:
        """Checks int64 times (n,), which must also lie within MAX_SPREAD_NS. Raises BadMessage."""
        if len(unix_nano):
            self.check_range(name, int(unix_nano.min()), int(unix_nano.max()))

    def check_range(self, name: str, first: int, last: int) -> None:
        """As `check_column`, for a column from `first` to `last`. Raises BadMessage."""
        self.check(name, first)
        self.check(name, last)
        check_spread(name, first, last)


ANY_TIME = Times()
"""1970 to 2099: for readers that keep nothing."""


@dataclass(frozen=True)
class TimeLimits:
    """How far the times in a message may be from Kafka's timestamp of the message."""

    late_ns: int  # before the timestamp: a collector's spool may deliver late
    early_ns: int  # after it: a host's clock may be ahead

    @classmethod
    def from_settings(cls, settings: MessageSettings) -> "TimeLimits":
        return cls(settings.max_late_days * DAY_NS, settings.max_early_hours * HOUR_NS)

    def collected(self, timestamp_ms: int) -> Times:
        """Returns what a message of a collector may hold. `timestamp_ms`: Kafka's; below 1 where it has none."""
        return self._around(timestamp_ms, self.late_ns)

    def derived(self, timestamp_ms: int) -> Times:
        """Returns what a message that was made of a collector's may hold."""
        return self._around(timestamp_ms, self.late_ns + MAX_LAG_NS)

    def _around(self, timestamp_ms: int, late_ns: int) -> Times:
        if timestamp_ms < 1:
            return ANY_TIME
        unix_nano = timestamp_ms * 10**6
        return Times(max(unix_nano - late_ns, ANY_TIME.first), min(unix_nano + self.early_ns, ANY_TIME.last))


ANY_LIMITS = TimeLimits(late_ns=MAX_UNIX_NANO, early_ns=MAX_UNIX_NANO)


def check_spread(name: str, first: int, last: int) -> None:
    """Raises BadMessage where the times of a message are too far from each other."""
    if last - first > MAX_SPREAD_NS:
        raise BadMessage(
            name,
            f"expected times within {MAX_SPREAD_NS // HOUR_NS} hours, got {_text(first)} to {_text(last)}",
        )


def _text(unix_nano: int) -> str:
    return format_unix_nano(unix_nano) if 0 <= unix_nano < MAX_UNIX_NANO else f"{unix_nano} ns"
