"""Replay: recomputes a time range, and puts back the rows that the tables lack.

It compares the range with the tables minute by minute and host by host, slice by slice (jobs/slices.py). It leaves a
minute with all its samples alone; in any other minute it replaces the rows of the batches that it recomputed. So a
replay of complete data changes nothing, and a replay that was killed can be run again. It never touches a minute with
batches that the source no longer has.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from jobs import lake
from jobs.batches import host_minutes, missing_batches
from jobs.corrections import mark_corrections, marks
from jobs.lake_rows import JobLake
from jobs.recompute import Counts
from jobs.slices import Work, work_through
from jobs.staging import Staging
from jobs.time_range import HostMinute, within


class Minute(NamedTuple):
    """A minute of a host and a profile type ('' for activity)."""

    host_id: str
    profile_type: str
    start_unix_s: int

    @property
    def of_host(self) -> HostMinute:
        return HostMinute(self.host_id, self.start_unix_s)


@dataclass
class ReplayReport:
    """What a replay compared and restored."""

    counts: Counts = field(default_factory=Counts)
    batches_added: int = 0
    minutes: int = 0
    """Minutes of a host and a profile type, and minutes of a host's activity."""
    minutes_restored: int = 0
    lake_minutes_restored: int = 0
    """Minutes of a host in the lake."""
    missing: int = 0
    """Stored batches that are not in the source."""
    resumed: bool = False

    def lines(self, dry_run: bool) -> list[str]:
        """Returns the report for people."""
        were = "would be" if dry_run else "were"
        lines = [
            f"{self.counts.samples} samples in {self.counts.batches} batches recomputed",
            f"{self.minutes_restored} of {self.minutes} minutes of hosts {were} restored",
            f"{self.batches_added} batches {were} added",
        ]
        if self.lake_minutes_restored:
            lines.append(f"{self.lake_minutes_restored} minutes of hosts {were} restored in the lake")
        lines += self.counts.lines()
        if self.missing:
            lines.append(f"{self.missing} stored batches are not in the source: their minutes were left alone")
        return [*lines, *(["continued an earlier run that had not finished"] if self.resumed else [])]


@dataclass(frozen=True)
class _Comparison:
    """A table that is compared minute by minute."""

    table: str
    time: str
    group: str
    """Host, profile type."""
    sums: str
    copied_to: str = ""
    """The table that a view fills from this one."""

    @property
    def minute(self) -> str:
        """The SQL expression of a row's minute."""
        return f"toUInt32(toUnixTimestamp(toStartOfMinute({self.time})))"


_SAMPLES = _Comparison("samples", "time", "host_id, profile_type", "sum(count), sum(value)", copied_to="trace_samples")
_ACTIVITY = _Comparison(
    "activity",
    "start_time",
    "host_id, ''",
    "count(), toInt64(sum(thread_cpu_ns)), sum(cityHash64(operation, entry_span_id))",
)


def replay(work: Work) -> ReplayReport:
    """Replays the range. Raises JobError, OSError and the client's errors."""
    report = ReplayReport()
    report.counts, report.resumed = work_through(work, lambda staging: _restore(work, staging, report))
    return report


def _restore(work: Work, staging: Staging, report: ReplayReport) -> None:
    """Puts back what the tables lack of a slice."""
    missing = missing_batches(work.client, work.source, staging.time_range, work.lake)
    protected = host_minutes(missing, staging.time_range)
    report.missing += len(missing)
    if not work.job.dry_run:
        staging.insert_new_names()
    for comparison in (_SAMPLES, _ACTIVITY):
        recomputed = staging.of_recomputed_batches(comparison.table)
        live = _sums(staging, comparison, comparison.table, recomputed)
        expected = _sums(staging, comparison, staging.table(comparison.table))
        torn = _torn_minutes(staging) if comparison.copied_to else set()
        wrong = [
            minute
            for minute, sums in expected.items()
            if (live.get(minute) != sums or minute in torn) and minute.of_host not in protected
        ]
        report.minutes += len(expected)
        report.minutes_restored += len(wrong)
        if wrong and not work.job.dry_run:
            _replace(staging, comparison, wrong)
            if comparison.copied_to:
                untouched = {minute.of_host for minute in expected.keys() - set(wrong)}
                _mark_corrections(work, staging, {minute.of_host for minute in wrong} - untouched)
    report.batches_added += staging.count_new_batches()
    if not work.job.dry_run:
        staging.mark_stored()
    if work.lake is not None:
        _restore_lake(work, work.lake, staging, protected, report)


def _restore_lake(
    work: Work, job_lake: JobLake, staging: Staging, protected: set[HostMinute], report: ReplayReport
) -> None:
    """Puts back what the lake lacks of a slice."""
    restored = lake.restore(job_lake, staging, protected, work.job.dry_run)
    report.lake_minutes_restored += len(restored)
    if not work.job.dry_run:
        lake.add_batches(job_lake, staging.batches())
        if restored:
            minutes = staging.fill_minutes(restored)
            lake.add_batches(job_lake, marks(staging, work.job.time_range, _within_minutes(minutes)))


def _mark_corrections(work: Work, staging: Staging, restored: Iterable[HostMinute]) -> None:
    """Marks the corrections that the restored samples include already. All minutes of the activity were restored."""
    mark_corrections(staging, work.job.time_range, _within_minutes(staging.fill_minutes(restored)))


def _within_minutes(minutes: str) -> str:
    """Returns the SQL condition that activity lies in some minutes of hosts, of which `minutes` is the table."""
    return (
        f"(host_id, intDiv(to_unix_nano - 1, 60000000000) * 60) IN {minutes}"
        f" AND (host_id, intDiv(from_unix_nano, 60000000000) * 60) IN {minutes}"
    )


def _sums(staging: Staging, comparison: _Comparison, table: str, condition: str = "1") -> dict[Minute, tuple[int, ...]]:
    """Returns the sums of the rows of each minute of the slice in a table."""
    rows = staging.client.query(
        f"SELECT {comparison.group}, {comparison.minute} AS minute, {comparison.sums} FROM {table}"
        f" WHERE {within(comparison.time)} AND {condition} GROUP BY ALL",
        parameters=staging.time_range.parameters,
    ).result_rows
    return {Minute(host_id, profile_type, minute): tuple(sums) for host_id, profile_type, minute, *sums in rows}


def _torn_minutes(staging: Staging) -> set[Minute]:
    """Returns the minutes in which `trace_samples` differs from the samples with a trace in `samples`."""
    traced = _sums(staging, _SAMPLES, _SAMPLES.table, "trace_id != toFixedString('', 16)")
    copied = _sums(staging, _SAMPLES, _SAMPLES.copied_to)
    return {minute for minute in traced.keys() | copied.keys() if traced.get(minute) != copied.get(minute)}


def _replace(staging: Staging, comparison: _Comparison, minutes: list[Minute]) -> None:
    """Replaces the rows of recomputed batches in these minutes."""
    wrong = staging.make_list(minutes, host="String", type="String", minute="UInt32")
    where = f"({comparison.group}, {comparison.minute}) {staging.globally}IN (SELECT host, type, minute FROM {wrong})"
    staging.replace(tuple(filter(None, (comparison.copied_to, comparison.table))), where)
