"""A job: what the commands ask for, and what both kinds of job have in common."""

import re
import time
from dataclasses import dataclass

from jobs.time_range import JobTimeRange

SETTLED_NS = 120 * 10**9
"""A range must have ended this long ago: the live pipeline still writes later ones."""
MAX_PROCESSES = 256


class JobError(Exception):
    """The range cannot be recomputed; the message says why and what to do."""


@dataclass(frozen=True)
class Outcome:
    """What a job did."""

    lines: list[str]
    """For people."""
    is_complete: bool
    """Whether the source had all that is stored in the range."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A replay or a backfill of a time range."""

    kind: str  # replay, backfill
    start_unix_nano: int
    end_unix_nano: int
    source: str = "auto"  # auto, kafka, archive
    dry_run: bool = False
    allow_missing: bool = False
    operators: str = ""  # MODULE:NAME of a streams.partition.process.Operators; empty: the default operators
    name: str = ""  # empty: by kind and range
    processes: int = 1
    restart: bool = False  # forget what an earlier run of this name has done

    @property
    def time_range(self) -> JobTimeRange:
        return JobTimeRange(self.start_unix_nano, self.end_unix_nano).whole_milliseconds()

    @property
    def full_name(self) -> str:
        """The name by which a job that was cut off is found again."""
        name = self.name or f"{self.kind}_{self.start_unix_nano // 10**6}_{self.end_unix_nano // 10**6}"
        return name + "_dry" * self.dry_run

    @property
    def arguments(self) -> str:
        """What must be the same when a job of this name continues."""
        start, end = self.time_range.start_unix_nano, self.time_range.end_unix_nano
        return f"{self.kind} {start} {end} {self.operators}".strip()

    def check(self) -> None:
        """Raises JobError if an argument is wrong, or the range did not end long enough ago."""
        if self.time_range.start_unix_nano >= self.time_range.end_unix_nano:
            raise JobError("the range is empty: --from must be at least a millisecond before --to")
        if self.end_unix_nano > time.time_ns() - SETTLED_NS:
            raise JobError(
                f"the range must have ended {SETTLED_NS // 10**9} s ago: the pipeline still writes later ones"
            )
        if not re.fullmatch(r"(?!.*__)[A-Za-z0-9_]{1,64}", self.full_name):
            raise JobError(f"--name {self.name}: expected up to 64 letters, digits and single underscores")
        if not 1 <= self.processes <= MAX_PROCESSES:
            raise JobError(f"--jobs {self.processes}: expected 1 to {MAX_PROCESSES}")
