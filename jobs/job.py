"""A job: what the commands ask for, and what both kinds of job have in common."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from jobs.time_range import TimeRange

SETTLED_NS = 120 * 10**9
"""A range must have ended this long ago: the live pipeline still writes later ones."""

Progress = Callable[[float, str], None]
"""A function that a job calls with the share that is done, 0 to 1, and what it has done so far."""


class JobError(Exception):
    """The range cannot be recomputed; the message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A replay or a backfill of a time range."""

    kind: str  # replay, backfill
    start_unix_nano: int
    end_unix_nano: int
    source: str = "auto"  # auto, kafka, archive
    dry_run: bool = False
    allow_missing: bool = False
    operators: str = ""  # MODULE:NAME of a streams.process.Operators; empty: the default operators

    @property
    def time_range(self) -> TimeRange:
        return TimeRange(self.start_unix_nano, self.end_unix_nano)

    def check(self) -> None:
        """Raises JobError if the range is empty, or did not end long enough ago."""
        if self.start_unix_nano >= self.end_unix_nano:
            raise JobError("the range is empty: --from must be before --to")
        if self.end_unix_nano > time.time_ns() - SETTLED_NS:
            raise JobError(
                f"the range must have ended {SETTLED_NS // 10**9} s ago: the pipeline still writes later ones"
            )
