"""Replay: recomputes a time range, and puts back the rows that the tables lack.

It compares the range with the tables minute by minute and host by host. It leaves a minute with all its samples alone;
it deletes any other minute and inserts the recomputed rows. So a replay of complete data changes nothing, and a replay
that was killed can be run again. It never touches a minute with batches that the source no longer has.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import NamedTuple

from clickhouse_connect.driver.client import Client

from jobs.batches import MissingBatch, mark_stored, missing_batches, new_batches
from jobs.job import Progress
from jobs.recompute import ActivityRange, Recomputed, recompute
from jobs.sources import Source
from jobs.staging import DELETE, drop_staging, insert_new_names, insert_settings, make_staging
from jobs.time_range import TimeRange, within
from sinks import stored_batches
from sinks.stored_batches import Batch, BatchKey
from streams.process import Operators

STAGING = "replay_"
_MINUTE_S = 60


class HostMinute(NamedTuple):
    """A minute of a host."""

    host_id: str
    start_unix_s: int


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

    samples: int = 0
    """Samples of the range in the source."""
    batches: set[BatchKey] = field(default_factory=set)
    batches_added: int = 0
    minutes: int = 0
    """Minutes of a host and a profile type, and minutes of a host's activity."""
    minutes_restored: int = 0
    bad: int = 0
    """Messages that cannot be decoded."""
    missing: list[MissingBatch] = field(default_factory=list)
    restored: set[HostMinute] = field(default_factory=set)
    """Minutes whose samples were restored."""
    untouched: set[HostMinute] = field(default_factory=set)
    """Minutes with samples that were left alone."""
    activity: dict[BatchKey, ActivityRange] = field(default_factory=dict)

    def lines(self, dry_run: bool) -> list[str]:
        """Returns the report for people."""
        were = "would be" if dry_run else "were"
        lines = [
            f"{self.samples} samples in {len(self.batches)} batches recomputed",
            f"{self.minutes_restored} of {self.minutes} minutes of hosts {were} restored",
            f"{self.batches_added} batches {were} added",
        ]
        if self.bad:
            lines.append(f"{self.bad} messages cannot be decoded and were left out")
        if self.missing:
            lines.append(f"{len(self.missing)} stored batches are not in the source: their minutes were left alone")
        return lines


@dataclass(frozen=True)
class _Comparison:
    """A table that is compared minute by minute."""

    table: str
    time: str
    group: str
    """Host, profile type."""
    sums: str
    fed: str = ""
    """The table that a view fills from this one."""

    @property
    def minute(self) -> str:
        """The SQL expression of a row's minute."""
        return f"toUInt32(toUnixTimestamp(toStartOfMinute({self.time})))"


_SAMPLES = _Comparison("samples", "time", "host_id, profile_type", "sum(count), sum(value)", fed="trace_samples")
_ACTIVITY = _Comparison("activity", "start_time", "host_id, ''", "count(), toInt64(sum(thread_cpu_ns))")


def replay(
    client: Client,
    source: Source,
    operators: Operators,
    time_range: TimeRange,
    dry_run: bool = False,
    progress: Progress = lambda part, text: None,
) -> ReplayReport:
    """Replays the range, cut to milliseconds. Raises SourceError and the client's errors."""
    time_range = time_range.whole_milliseconds()
    report = ReplayReport()
    block = f"replay/{time_range.start_unix_nano}"
    try:
        for part in time_range.slices():
            drop_staging(client, STAGING)
            make_staging(client, STAGING)
            recomputed = recompute(client, source, operators, part, STAGING)
            _restore(client, recomputed, part, dry_run, report)
            progress(time_range.done_by(part), f"{report.samples} samples")
        if not dry_run:
            mark_stored(client, _corrections(report, time_range), block)
    finally:
        drop_staging(client, STAGING)
    return report


def _restore(
    client: Client, recomputed: Recomputed, time_range: TimeRange, dry_run: bool, report: ReplayReport
) -> None:
    """Puts back what the tables lack of a slice."""
    missing = missing_batches(client, time_range, recomputed.batches)
    protected = {minute for batch in missing for minute in _minutes_of(batch)}
    report.missing += missing
    report.samples += recomputed.samples
    report.batches |= recomputed.batches.keys()
    report.bad += recomputed.bad
    report.activity |= {activity.batch.key: activity for activity in recomputed.activity}
    if not dry_run:
        insert_new_names(client, STAGING)
    for comparison in (_SAMPLES, _ACTIVITY):
        live = _sums(client, comparison, comparison.table, time_range)
        expected = _sums(client, comparison, STAGING + comparison.table, time_range)
        torn = _torn_minutes(client, time_range) if comparison.fed else set()
        wrong = [
            minute
            for minute, sums in expected.items()
            if (live.get(minute) != sums or minute in torn) and minute.of_host not in protected
        ]
        report.minutes += len(expected)
        report.minutes_restored += len(wrong)
        if comparison.fed:
            report.restored |= {minute.of_host for minute in wrong}
            report.untouched |= {minute.of_host for minute in expected.keys() - set(wrong)}
        if wrong and not dry_run:
            _replace(client, comparison, wrong, time_range)
    new = new_batches(client, recomputed.batches)
    report.batches_added += len(new)
    if not dry_run:
        mark_stored(client, new, f"replay/{time_range.start_unix_nano}")


def _minutes_of(batch: MissingBatch) -> set[HostMinute]:
    return _host_minutes(batch.host_id, batch.first_unix_milli // 1000, batch.last_unix_milli // 1000)


def _host_minutes(host_id: str, first_unix_s: int, last_unix_s: int) -> set[HostMinute]:
    """Returns the minutes of a host that the time from `first_unix_s` to `last_unix_s` touches."""
    first_minute = first_unix_s // _MINUTE_S * _MINUTE_S
    return {HostMinute(host_id, minute) for minute in range(first_minute, last_unix_s + 1, _MINUTE_S)}


def _corrections(report: ReplayReport, time_range: TimeRange) -> list[Batch]:
    """Returns the corrections that the restored samples include already: the sink must not store them on top.

    Activity that reaches out of the restored minutes is left out: the rest of its corrections may still come.
    """
    corrections = []
    for activity in report.activity.values():
        start, end = activity.start_unix_nano, activity.end_unix_nano
        minutes = _host_minutes(activity.batch.host_id, start // 10**9, end // 10**9)
        inside = time_range.start_unix_nano <= start and end <= time_range.end_unix_nano
        if inside and minutes & report.restored and not minutes & report.untouched:
            corrections.append(
                dataclasses.replace(
                    activity.batch,
                    kind=stored_batches.CORRECTIONS,
                    output=stored_batches.ALL_OUTPUTS,
                    outputs=0,
                    rows=0,
                    count=0,
                    value=0,
                )
            )
    return corrections


def _sums(
    client: Client, comparison: _Comparison, table: str, time_range: TimeRange, condition: str = ""
) -> dict[Minute, tuple[int, ...]]:
    """Returns the sums of the rows of each minute in a table."""
    rows = client.query(
        f"SELECT {comparison.group}, {comparison.minute} AS minute, {comparison.sums} FROM {table}"
        f" WHERE {within(comparison.time)} {condition} GROUP BY ALL",
        parameters=time_range.parameters,
    ).result_rows
    return {Minute(host_id, profile_type, minute): tuple(sums) for host_id, profile_type, minute, *sums in rows}


def _torn_minutes(client: Client, time_range: TimeRange) -> set[Minute]:
    """Returns the minutes in which `trace_samples` differs from the samples with a trace in `samples`."""
    traced = _sums(client, _SAMPLES, _SAMPLES.table, time_range, "AND trace_id != toFixedString('', 16)")
    copied = _sums(client, _SAMPLES, _SAMPLES.fed, time_range)
    return {minute for minute in traced.keys() | copied.keys() if traced.get(minute) != copied.get(minute)}


def _replace(client: Client, comparison: _Comparison, minutes: list[Minute], time_range: TimeRange) -> None:
    """Deletes the rows of these minutes, and inserts the recomputed ones. The view fills the table that it feeds."""
    wrong = f"{STAGING}minutes"
    client.command(f"CREATE OR REPLACE TABLE {wrong} (host String, type String, minute UInt32) ENGINE = Memory")
    client.insert(
        wrong, [list(minute) for minute in minutes], column_names=["host", "type", "minute"], settings=insert_settings()
    )
    where = (
        f"{within(comparison.time)} AND ({comparison.group}, {comparison.minute})"
        f" IN (SELECT host, type, minute FROM {wrong})"
    )
    for table in filter(None, (comparison.fed, comparison.table)):
        client.command(f"DELETE FROM {table} WHERE {where}", parameters=time_range.parameters, settings=DELETE)
    client.command(
        f"INSERT INTO {comparison.table} SELECT * FROM {STAGING}{comparison.table} WHERE {where}",
        parameters=time_range.parameters,
        settings=insert_settings(),
    )
    client.command(f"DROP TABLE {wrong}")
