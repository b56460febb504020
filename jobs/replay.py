"""Replay: recomputes a time range, and puts back what the tables lack or have otherwise.

It compares the range with the tables minute by minute and host by host (jobs/stored/compare.py), slice by slice
(jobs/recompute/slices.py). It leaves a minute alone that is as it was recomputed; in any other minute it replaces the
rows of the batches that it recomputed. So a replay of complete data changes nothing, and a replay that was killed can
be run again. It never touches a minute with batches that the source no longer has, or with samples whose activity it no
longer has.
"""

from collections.abc import Set
from dataclasses import dataclass, field

from jobs.job import Outcome
from jobs.lake import lake
from jobs.lake.rows import JobLake
from jobs.recompute.recompute import RecomputeCounts
from jobs.recompute.slices import Work, work_through
from jobs.staging.staging import Staging
from jobs.stored.batches import host_minutes, missing_batches, outside
from jobs.stored.compare import compare, in_minutes
from jobs.stored.corrections import mark_corrections, marks
from jobs.stored.names import add_names
from jobs.stored.restored import Restored
from jobs.time_range import HostMinute

_TABLES = {"samples": ("trace_samples", "samples"), "activity": ("activity",)}


@dataclass
class ReplayReport:
    """What a replay compared and restored."""

    counts: RecomputeCounts = field(default_factory=RecomputeCounts)
    clickhouse: Restored = field(default_factory=Restored)
    lake: Restored | None = None
    missing: int = 0
    """Stored batches that are not in the source."""
    resumed: bool = False

    @property
    def unknown(self) -> set[HostMinute]:
        """See Restored."""
        return self.clickhouse.unknown | (self.lake.unknown if self.lake else set())

    def outcome(self, dry_run: bool) -> Outcome:
        """Returns the report for people."""
        lines = [f"{self.counts.samples} samples in {self.counts.batches} batches recomputed"]
        lines.append(self.clickhouse.line("ClickHouse", dry_run))
        if self.lake:
            lines.append(self.lake.line("the lake", dry_run))
        lines += self.counts.lines()
        lacking = self.counts.lacking()
        if self.missing:
            lacking.append(f"{self.missing} stored batches are not in the source: their minutes were left alone")
        if self.unknown:
            lacking.append(
                "the activity of stored traces is not in the source:"
                f" {len(self.unknown)} minutes of hosts were left alone"
            )
        resumed = ["continued an earlier run that had not finished"] if self.resumed else []
        return Outcome([*lines, *lacking, *resumed], is_complete=not lacking)


def replay(work: Work) -> ReplayReport:
    """Replays the range. Raises JobError, OSError and the client's errors."""
    report = ReplayReport(lake=Restored() if work.lake else None)
    report.counts, report.resumed = work_through(work, lambda staging: _restore(work, staging, report))
    return report


def _restore(work: Work, staging: Staging, report: ReplayReport) -> bool:
    """Puts back what the stores lack of a slice. Returns whether the source had all of it."""
    missing = missing_batches(work, staging.time_range, staging.names_of_batches())
    protected = host_minutes(missing, staging.time_range)
    report.missing += len(missing)
    unknown = report.unknown
    _restore_clickhouse(work, staging, protected, report.clickhouse)
    if work.lake is not None and report.lake is not None:
        _restore_lake(work, work.lake, staging, protected, report.lake)
    return not missing and report.unknown == unknown


def _restore_clickhouse(work: Work, staging: Staging, protected: Set[HostMinute], restored: Restored) -> None:
    dry_run, alone = work.job.dry_run, set(protected)
    restored.restored += add_names(staging, dry_run)
    for name, tables in _TABLES.items():
        if name == "activity" and staging.thinned_days():
            continue
        compared = compare(staging, name)
        wrong = restored.minutes_to_restore(name, compared, alone)
        if wrong and not dry_run:
            minutes = staging.fill_minutes(wrong)
            staging.replace(tables, in_minutes(staging, name, minutes))
            if name == "samples":
                mark_corrections(staging, work.job.time_range, _within_minutes(minutes))
    complete = outside(staging, alone)
    restored.restored["batches"] += staging.count_new_batches(complete)
    if not dry_run:
        staging.mark_stored(complete)


def _restore_lake(
    work: Work, job_lake: JobLake, staging: Staging, protected: Set[HostMinute], restored: Restored
) -> None:  # fmt: skip
    dry_run, alone = work.job.dry_run, set(protected)
    restored.restored += lake.add_names_and_spans(job_lake, staging, dry_run)
    for name in _TABLES:
        with staging.copy(name, lake.stored(job_lake, staging, name)) as copy:
            compared = compare(staging, name, copy)
        wrong = restored.minutes_to_restore(name, compared, alone)
        if wrong and not dry_run:
            lake.replace_minutes(job_lake, staging, name, wrong)
            if name == "samples":
                minutes = staging.fill_minutes(wrong)
                lake.add_batches(job_lake, marks(staging, work.job.time_range, _within_minutes(minutes)))
    restored.restored["batches"] += lake.add_batches(job_lake, staging.batches(outside(staging, alone)), dry_run)


def _within_minutes(minutes: str) -> str:
    """Returns the SQL condition that activity lies in the minutes of hosts in the table `minutes`: then the samples
    that were restored there include all corrections by it."""
    return (
        f"(host_id, intDiv(to_unix_nano - 1, 60000000000) * 60) IN {minutes}"
        f" AND (host_id, intDiv(from_unix_nano, 60000000000) * 60) IN {minutes}"
    )
