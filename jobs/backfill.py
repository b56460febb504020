"""Backfill: a time range recomputed as a whole, and put in the place of what is stored of it.

First the range is recomputed into staging tables, slice by slice. Then, day by day and table by table, it takes the
place of the stored rows: of a day that has been over for a while by swapping the whole partition (readers see the old
rows or the new ones; rows of that day outside of the range are copied first), of a later one, which is still being
written, by deleting and inserting. What is done is recorded in the table `jobs`: a backfill that was killed goes on
where it was.

Batches stay remembered as they are, so that no part of the stream that comes again is stored on top.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone

from clickhouse_connect.driver.client import Client

from jobs.coverage import Missing, missing, summary
from jobs.recompute import (
    DELETE,
    TABLES,
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
from jobs.replay import JobError, Progress
from jobs.source import Source
from sinks import stored_batches
from streams.process import Operators

COLD_S = 86_400
"""A day that was over that long ago is swapped; until then late batches of it are normal."""
_TIMES = {"samples": "time", "trace_samples": "time", "activity": "start_time", "spans": "start_time"}
_COPIES = 3


@dataclass
class Report:
    """What a backfill did."""

    samples: int = 0
    slices: int = 0
    swapped: int = 0
    replaced: int = 0
    bad: int = 0
    resumed: bool = False

    def lines(self) -> list[str]:
        """For people."""
        text = [
            f"{self.samples} samples recomputed in {self.slices} slices",
            f"{self.swapped} partitions swapped, {self.replaced} replaced row by row",
        ]
        if self.bad:
            text.append(f"{self.bad} messages cannot be decoded and were left out")
        return [*text, *(["went on where an earlier run had ended"] if self.resumed else [])]


@dataclass(frozen=True)
class _Job:
    """One backfill; its name is the same when it is started again."""

    client: Client
    name: str
    start: int  # Unix nanoseconds, whole milliseconds
    end: int

    @property
    def staging(self) -> str:
        return f"backfill_{self.start // 10**6}_{self.end // 10**6}_"

    @property
    def times(self) -> dict[str, int]:
        return {"start": self.start // 10**6, "end": self.end // 10**6}

    def did(self, step: str) -> bool:
        rows = self.client.query(
            "SELECT count() FROM jobs WHERE job = {job:String} AND step = {step:String}",
            parameters={"job": self.name, "step": step},
        ).result_rows
        return bool(rows[0][0])

    def record(self, step: str) -> None:
        self.client.insert("jobs", [[self.name, step]], column_names=["job", "step"], settings=insert_settings())

    def once(self, step: str, work: Callable[[], None]) -> None:
        """Does a step that may be done again when it was cut off."""
        if not self.did(step):
            work()
            self.record(step)


def backfill(
    client: Client,
    source: Source,
    operators: Operators,
    start: int,
    end: int,
    allow_missing: bool = False,
    label: str = "",
    progress: Progress = lambda part, text: None,
) -> Report:
    """Unix nanoseconds; parts of a millisecond are cut. `label` names the operators: another one is another backfill.

    Raises JobError where the source lacks stored batches of the range, SourceError, and the client's errors.
    """
    start, end = start // 10**6 * 10**6, end // 10**6 * 10**6
    job = _Job(client, f"backfill {start} {end} {label}", start, end)
    report = Report(resumed=job.did("begun"))
    if not report.resumed:
        drop_staging(client, job.staging, (*TABLES, "trace_samples"))
        job.record("begun")
    make_staging(client, job.staging, (*TABLES, "trace_samples"))
    _recompute(job, source, operators, allow_missing, report, progress)
    job.once("announced", lambda: add_announced(client, job.staging))
    for day in _days(start, end):
        _take_place(job, day, report)
        progress(0.9 + 0.1 * (day - _days(start, end)[0]).days / len(_days(start, end)), f"{day} done")
    client.command("DELETE FROM jobs WHERE job = {job:String}", parameters={"job": job.name}, settings=DELETE)
    drop_staging(client, job.staging, (*TABLES, "trace_samples"))
    progress(1.0, "done")
    return report


def _recompute(
    job: _Job, source: Source, operators: Operators, allow_missing: bool, report: Report, progress: Progress
) -> None:
    """The range into the staging tables."""
    lost: list[Missing] = []
    for first, last in slices(job.start, job.end):
        step = f"recomputed {first} {last}"
        if not job.did(step):
            _clear(job, first, last)
            done = recompute(job.client, source, operators, first, last, job.staging)
            _trace_rows(job, first, last)
            lost += missing(job.client, first, last, done.batches)
            if lost and not allow_missing:
                raise JobError(
                    f"{source} lacks {summary(lost)} of this range, their rows would be lost: take another --source or "
                    "range, or say --allow-missing"
                )
            _remember(job, done)
            report.samples += done.samples
            report.bad += done.bad
            job.record(step)
        report.slices += 1
        progress(0.9 * (last - job.start) / (job.end - job.start), f"{report.samples} samples")


def _clear(job: _Job, first: int, last: int) -> None:
    """Takes out what a run that was cut off left of a slice."""
    times = {"start": first // 10**6, "end": last // 10**6}
    for table, column in _TIMES.items():
        if job.client.query(f"SELECT 1 FROM {job.staging}{table} WHERE {_within(column)} LIMIT 1", times).result_rows:
            job.client.command(
                f"DELETE FROM {job.staging}{table} WHERE {_within(column)}", parameters=times, settings=DELETE
            )


def _trace_rows(job: _Job, first: int, last: int) -> None:
    """What the view would have made of the staged samples."""
    names = ", ".join(
        name for (name,) in job.client.query(
            "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = 'trace_samples'"
            " ORDER BY position"
        ).result_rows
    )  # fmt: skip
    job.client.command(
        f"INSERT INTO {job.staging}trace_samples ({names}) SELECT {names} FROM {job.staging}samples"
        f" WHERE {_within('time')} AND trace_id != toFixedString('', 16)",
        parameters={"start": first // 10**6, "end": last // 10**6},
        settings=insert_settings(),
    )


def _remember(job: _Job, done: Recomputed) -> None:
    absent: list[stored_batches.Batch] = absent_batches(job.client, done)
    add_batches(job.client, absent, job.name)


def _take_place(job: _Job, day: date, report: Report) -> None:
    """Puts the staged rows of a day in the place of the stored ones."""
    over = datetime(day.year, day.month, day.day, tzinfo=timezone.utc) + timedelta(days=1, seconds=COLD_S)
    if over.timestamp() < time.time():
        for table, column in _TIMES.items():
            job.once(f"swapped {day} {table}", lambda table=table, column=column: _swap(job, day, table, column))  # type: ignore[misc]
            report.swapped += 1
    else:
        job.once(f"replaced {day}", lambda: _replace(job, day))
        report.replaced += len(_TIMES)


def _swap(job: _Job, day: date, table: str, column: str) -> None:
    """Swaps the partition, after copying to it what is outside of the range."""
    of_day = f"toDate({column}) = '{day}'"
    outside = f"{of_day} AND NOT ({_within(column)})"
    staged = job.staging + table
    for _ in range(_COPIES):
        job.client.command(f"DELETE FROM {staged} WHERE {outside}", parameters=job.times, settings=DELETE)
        job.client.command(
            f"INSERT INTO {staged} SELECT * FROM {table} WHERE {outside}",
            parameters=job.times,
            settings=insert_settings(),
        )
        if _count(job, staged, outside) == _count(job, table, outside):
            break
    else:
        raise JobError(f"{table} of {day} is being written right now: run this again when it is quiet")
    if _count(job, staged, of_day):
        job.client.command(f"ALTER TABLE {table} REPLACE PARTITION '{day}' FROM {staged}")
    else:
        job.client.command(f"ALTER TABLE {table} DROP PARTITION '{day}'")


def _replace(job: _Job, day: date) -> None:
    """Deletes the stored rows of the range and inserts the staged ones. `trace_samples` is fed by its view."""
    for table, column in _TIMES.items():
        where = f"toDate({column}) = '{day}' AND {_within(column)}"
        job.client.command(f"DELETE FROM {table} WHERE {where}", parameters=job.times, settings=DELETE)
    for table, column in _TIMES.items():
        if table != "trace_samples":
            where = f"toDate({column}) = '{day}' AND {_within(column)}"
            job.client.command(
                f"INSERT INTO {table} SELECT * FROM {job.staging}{table} WHERE {where}",
                parameters=job.times,
                settings=insert_settings(),
            )


def _count(job: _Job, table: str, where: str) -> int:
    return int(job.client.query(f"SELECT count() FROM {table} WHERE {where}", parameters=job.times).result_rows[0][0])


def _days(start: int, end: int) -> list[date]:
    first = datetime.fromtimestamp(start // 10**9, timezone.utc).date()
    last = datetime.fromtimestamp((end - 1) // 10**9, timezone.utc).date()
    return [first + timedelta(days=i) for i in range((last - first).days + 1)]


def _within(column: str) -> str:
    start, end = (f"fromUnixTimestamp64Milli({{{name}:Int64}})" for name in ("start", "end"))
    return f"({column} >= {start} AND {column} < {end})"
