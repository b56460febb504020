"""Replay: a time range through the operators again, and back into the tables what of it is absent or incomplete.

The range is compared minute by minute, host by host. A minute that has all its samples is left alone; one that has not
is deleted and inserted as recomputed. So a replay of what is there changes nothing, and one that was killed can simply
be run again. A minute that holds batches the source no longer has is never touched.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

from clickhouse_connect.driver.client import Client

from jobs.coverage import Missing, missing
from jobs.recompute import (
    DELETE,
    Recomputed,
    absent_batches,
    add_announced,
    add_batches,
    drop_staging,
    insert_settings,
    make_staging,
    recompute,
    slices,
)
from jobs.source import Source
from sinks import stored_batches
from streams.process import Operators

STAGING = "replay_"
MARGIN_NS = 120 * 10**9
"""A range must have ended that long ago: later ones are still being written."""
_MINUTE_MS = 60_000
_MINUTE_NS = 60 * 10**9

Progress = Callable[[float, str], None]
"""Called with the part done, 0 to 1, and what was done last."""
Minute = tuple[str, str, int]
"""Host, profile type ('' for activity), Unix seconds."""


class JobError(Exception):
    """The range cannot be recomputed; the message says why and what to do."""


@dataclass
class Report:
    """What a replay found and did."""

    samples: int = 0
    """In the source, of the range."""
    batches: set[stored_batches.BatchKey] = field(default_factory=set)
    batches_added: int = 0
    minutes: int = 0
    """Of a host and a profile type, or of a host's activity."""
    minutes_restored: int = 0
    bad: int = 0
    missing: list[Missing] = field(default_factory=list)
    restored: set[tuple[str, int]] = field(default_factory=set)
    """Minutes of a host's samples: Unix seconds."""
    untouched: set[tuple[str, int]] = field(default_factory=set)
    activity: dict[stored_batches.BatchKey, tuple[stored_batches.Batch, int, int]] = field(default_factory=dict)
    """Activity batches with their first and last moment, Unix nanoseconds."""

    def lines(self, dry: bool) -> list[str]:
        """For people."""
        text = [
            f"{self.samples} samples in {len(self.batches)} batches recomputed",
            f"{self.minutes_restored} of {self.minutes} minutes of hosts {'would be' if dry else 'were'} restored",
            f"{self.batches_added} batches {'would be' if dry else 'were'} added",
        ]
        if self.bad:
            text.append(f"{self.bad} messages cannot be decoded and were left out")
        if self.missing:
            text.append(f"{len(self.missing)} stored batches are not in the source: their minutes were left alone")
        return text


@dataclass(frozen=True)
class _Kind:
    """A table that is compared by the minute, and what its view feeds."""

    table: str
    time: str
    group: str  # host, profile type
    sums: str
    fed: str = ""


_KINDS = (
    _Kind("samples", "time", "host_id, profile_type", "sum(count), sum(value)", fed="trace_samples"),
    _Kind("activity", "start_time", "host_id, ''", "count(), toInt64(sum(thread_cpu_ns))"),
)
_MINUTE = "toUInt32(toUnixTimestamp(toStartOfMinute({time})))"
_RANGE = "{time} >= fromUnixTimestamp64Milli({{start:Int64}}) AND {time} < fromUnixTimestamp64Milli({{end:Int64}})"


def replay(
    client: Client,
    source: Source,
    operators: Operators,
    start: int,
    end: int,
    dry: bool = False,
    progress: Progress = lambda part, text: None,
) -> Report:
    """Unix nanoseconds; parts of a millisecond are cut. Raises SourceError and the client's errors."""
    start, end = start // 10**6 * 10**6, end // 10**6 * 10**6
    report = Report()
    try:
        for first, last in slices(start, end):
            drop_staging(client, STAGING)
            make_staging(client, STAGING)
            done = recompute(client, source, operators, first, last, STAGING)
            _restore(client, done, first, last, dry, report)
            progress((last - start) / (end - start), f"{report.samples} samples")
        if not dry:
            add_batches(client, _implied(report, start, end), f"replay/{start}")
    finally:
        drop_staging(client, STAGING)
    return report


def _restore(client: Client, done: Recomputed, start: int, end: int, dry: bool, report: Report) -> None:
    """Puts back what a slice lacks."""
    lost = missing(client, start, end, done.batches)
    kept = {
        (batch.host_id, minute)
        for batch in lost
        for minute in range(batch.first_unix_milli // _MINUTE_MS * 60, batch.last_unix_milli // 1000 + 1, 60)
    }
    report.missing += lost
    report.samples += done.samples
    report.batches |= done.batches.keys()
    report.bad += done.bad
    report.activity |= {entry[0].key: entry for entry in done.activity}
    if not dry:
        add_announced(client, STAGING)
    times = {"start": start // 10**6, "end": end // 10**6}
    for kind in _KINDS:
        live, expected = _sums(client, kind, kind.table, times), _sums(client, kind, STAGING + kind.table, times)
        torn = _torn(client, times) if kind.fed else set()
        wrong = [
            minute
            for minute, sums in expected.items()
            if (live.get(minute) != sums or minute in torn) and (minute[0], minute[2]) not in kept
        ]
        report.minutes += len(expected)
        report.minutes_restored += len(wrong)
        if kind.fed:
            report.restored |= {(minute[0], minute[2]) for minute in wrong}
            report.untouched |= {(minute[0], minute[2]) for minute in expected.keys() - set(wrong)}
        if wrong and not dry:
            _replace(client, kind, wrong, times)
    absent = absent_batches(client, done)
    report.batches_added += len(absent)
    if not dry:
        add_batches(client, absent, f"replay/{start}")


def _implied(report: Report, start: int, end: int) -> list[stored_batches.Batch]:
    """Corrections that restored samples contain: when they come (again), they must not be stored on top.

    Of activity that reaches out of what was restored the other part may still be to come, so it is not among them.
    """
    implied = []
    for batch, first, last in report.activity.values():
        minutes = {(batch.host_id, minute) for minute in range(first // _MINUTE_NS * 60, last // 10**9 + 1, 60)}
        if start <= first and last <= end and minutes & report.restored and not minutes & report.untouched:
            implied.append(
                dataclasses.replace(
                    batch,
                    kind=stored_batches.CORRECTIONS,
                    output=stored_batches.ALL_OUTPUTS,
                    outputs=0,
                    rows=0,
                    count=0,
                    value=0,
                )
            )
    return implied


def _sums(
    client: Client, kind: _Kind, table: str, times: dict[str, int], more: str = ""
) -> dict[Minute, tuple[int, ...]]:
    """Sums of the rows of each minute."""
    rows = client.query(
        f"SELECT {kind.group}, {_MINUTE.format(time=kind.time)} AS minute, {kind.sums} FROM {table}"
        f" WHERE {_RANGE.format(time=kind.time)} {more} GROUP BY ALL",
        parameters=times,
    ).result_rows
    return {(host, profile_type, minute): tuple(sums) for host, profile_type, minute, *sums in rows}


def _torn(client: Client, times: dict[str, int]) -> set[Minute]:
    """Minutes in which `trace_samples` is not what `samples` has of traces."""
    kind = _KINDS[0]
    traced = _sums(client, kind, kind.table, times, "AND trace_id != toFixedString('', 16)")
    copied = _sums(client, kind, kind.fed, times)
    return {minute for minute in traced.keys() | copied.keys() if traced.get(minute) != copied.get(minute)}


def _replace(client: Client, kind: _Kind, minutes: list[Minute], times: dict[str, int]) -> None:
    """Deletes the rows of these minutes, and inserts the recomputed ones; the view feeds what it feeds."""
    wrong = f"{STAGING}minutes"
    client.command(f"CREATE OR REPLACE TABLE {wrong} (host String, type String, minute UInt32) ENGINE = Memory")
    client.insert(
        wrong, [list(minute) for minute in minutes], column_names=["host", "type", "minute"], settings=insert_settings()
    )
    where = (
        f"{_RANGE.format(time=kind.time)} AND ({kind.group}, {_MINUTE.format(time=kind.time)})"
        f" IN (SELECT host, type, minute FROM {wrong})"
    )
    for table in filter(None, (kind.fed, kind.table)):
        client.command(f"DELETE FROM {table} WHERE {where}", parameters=times, settings=DELETE)
    client.command(
        f"INSERT INTO {kind.table} SELECT * FROM {STAGING}{kind.table} WHERE {where}",
        parameters=times,
        settings=insert_settings(),
    )
    client.command(f"DROP TABLE {wrong}")
