"""Backfill: recomputes a time range as a whole, and replaces what is stored of it.

First it recomputes the range into staging tables, slice by slice. Then it replaces the stored rows, day by day and
table by table. It swaps the whole partition of a day that has been over for a while: readers see the old rows or the
new ones, and rows of that day outside of the range are copied first. A later day is still being written, so there it
deletes and inserts rows. The table `jobs` records each finished step: a backfill that was killed continues after it.

Batches stay marked as stored, so the sink does not store messages of the range again.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone

from clickhouse_connect.driver.client import Client

from jobs.batches import MissingBatch, describe, mark_stored, missing_batches, new_batches
from jobs.job import JobError, Progress
from jobs.recompute import recompute
from jobs.sources import Source
from jobs.staging import DELETE, TABLES, drop_staging, insert_new_names, insert_settings, make_staging
from jobs.time_range import TimeRange, within
from streams.process import Operators

COLD_S = 86_400
"""Backfill swaps a day that was over this long ago; until then late batches of it are normal."""
_TIMES = {"samples": "time", "trace_samples": "time", "activity": "start_time", "spans": "start_time"}
"""The tables that are replaced -> their time."""
_STAGED = (*TABLES, "trace_samples")
_COPIES = 3


@dataclass
class BackfillReport:
    """What a backfill did."""

    samples: int = 0
    slices: int = 0
    swapped: int = 0
    replaced: int = 0
    bad: int = 0
    """Messages that cannot be decoded."""
    resumed: bool = False

    def lines(self) -> list[str]:
        """Returns the report for people."""
        lines = [
            f"{self.samples} samples recomputed in {self.slices} slices",
            f"{self.swapped} partitions swapped, {self.replaced} replaced row by row",
        ]
        if self.bad:
            lines.append(f"{self.bad} messages cannot be decoded and were left out")
        return [*lines, *(["continued an earlier run that had not finished"] if self.resumed else [])]


@dataclass(frozen=True)
class _Backfill:
    """One backfill; a backfill that is started again has the same name."""

    client: Client
    name: str
    time_range: TimeRange

    @property
    def staging(self) -> str:
        """The prefix of its staging tables."""
        milli = 10**6
        return f"backfill_{self.time_range.start_unix_nano // milli}_{self.time_range.end_unix_nano // milli}_"

    def is_finished(self, step: str) -> bool:
        rows = self.client.query(
            "SELECT count() FROM jobs WHERE job = {job:String} AND step = {step:String}",
            parameters={"job": self.name, "step": step},
        ).result_rows
        return bool(rows[0][0])

    def record(self, step: str) -> None:
        """Records that a step is finished."""
        self.client.insert("jobs", [[self.name, step]], column_names=["job", "step"], settings=insert_settings())

    def once(self, step: str, work: Callable[[], None]) -> None:
        """Does a step that is not finished. `work` may run again if it was cut off."""
        if not self.is_finished(step):
            work()
            self.record(step)


def backfill(
    client: Client,
    source: Source,
    operators: Operators,
    time_range: TimeRange,
    allow_missing: bool = False,
    label: str = "",
    progress: Progress = lambda part, text: None,
) -> BackfillReport:
    """Backfills the range, cut to milliseconds. `label` names the operators: with others it is another backfill.

    Raises JobError if the source lacks stored batches of the range, SourceError, and the client's errors.
    """
    time_range = time_range.whole_milliseconds()
    name = f"backfill {time_range.start_unix_nano} {time_range.end_unix_nano} {label}"
    job = _Backfill(client, name, time_range)
    report = BackfillReport(resumed=job.is_finished("begun"))
    if not report.resumed:
        drop_staging(client, job.staging, _STAGED)
        job.record("begun")
    make_staging(client, job.staging, _STAGED)
    _recompute(job, source, operators, allow_missing, report, progress)
    job.once("announced", lambda: insert_new_names(client, job.staging))
    days = time_range.days()
    for number, day in enumerate(days):
        _replace_day(job, day, report)
        progress(0.9 + 0.1 * number / len(days), f"{day} done")
    client.command("DELETE FROM jobs WHERE job = {job:String}", parameters={"job": job.name}, settings=DELETE)
    drop_staging(client, job.staging, _STAGED)
    progress(1.0, "done")
    return report


def _recompute(
    job: _Backfill,
    source: Source,
    operators: Operators,
    allow_missing: bool,
    report: BackfillReport,
    progress: Progress,
) -> None:
    """Recomputes the range into the staging tables."""
    missing: list[MissingBatch] = []
    for part in job.time_range.slices():
        step = f"recomputed {part.start_unix_nano} {part.end_unix_nano}"
        if not job.is_finished(step):
            _clear(job, part)
            recomputed = recompute(job.client, source, operators, part, job.staging)
            _copy_traced(job, part)
            missing += missing_batches(job.client, part, recomputed.batches)
            if missing and not allow_missing:
                raise JobError(
                    f"{source} lacks {describe(missing)} of this range, so their rows would be lost: choose another "
                    "--source or range, or accept the loss with --allow-missing"
                )
            mark_stored(job.client, new_batches(job.client, recomputed.batches), job.name)
            report.samples += recomputed.samples
            report.bad += recomputed.bad
            job.record(step)
        report.slices += 1
        progress(0.9 * job.time_range.done_by(part), f"{report.samples} samples")


def _clear(job: _Backfill, part: TimeRange) -> None:
    """Deletes the staged rows of a slice that an earlier run did not finish."""
    for table, column in _TIMES.items():
        staged, where = job.staging + table, within(column)
        if job.client.query(f"SELECT 1 FROM {staged} WHERE {where} LIMIT 1", part.parameters).result_rows:
            job.client.command(f"DELETE FROM {staged} WHERE {where}", parameters=part.parameters, settings=DELETE)


def _copy_traced(job: _Backfill, part: TimeRange) -> None:
    """Copies the staged samples with a trace to the staged `trace_samples`, as the view does for the live tables."""
    columns = job.client.query(
        "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = 'trace_samples'"
        " ORDER BY position"
    ).result_rows
    names = ", ".join(name for (name,) in columns)
    job.client.command(
        f"INSERT INTO {job.staging}trace_samples ({names}) SELECT {names} FROM {job.staging}samples"
        f" WHERE {within('time')} AND trace_id != toFixedString('', 16)",
        parameters=part.parameters,
        settings=insert_settings(),
    )


def _replace_day(job: _Backfill, day: date, report: BackfillReport) -> None:
    """Replaces the stored rows of a day by the staged ones."""
    cold = datetime(day.year, day.month, day.day, tzinfo=timezone.utc) + timedelta(days=1, seconds=COLD_S)
    if cold.timestamp() < time.time():
        for table, column in _TIMES.items():
            job.once(f"swapped {day} {table}", lambda table=table, column=column: _swap(job, day, table, column))  # type: ignore[misc]
            report.swapped += 1
    else:
        job.once(f"replaced {day}", lambda: _replace_rows(job, day))
        report.replaced += len(_TIMES)


def _swap(job: _Backfill, day: date, table: str, column: str) -> None:
    """Swaps the partition of a day, after copying the rows outside of the range into the staged one."""
    of_day = f"toDate({column}) = '{day}'"
    outside = f"{of_day} AND NOT {within(column)}"
    staged, parameters = job.staging + table, job.time_range.parameters
    for _ in range(_COPIES):
        job.client.command(f"DELETE FROM {staged} WHERE {outside}", parameters=parameters, settings=DELETE)
        job.client.command(
            f"INSERT INTO {staged} SELECT * FROM {table} WHERE {outside}",
            parameters=parameters,
            settings=insert_settings(),
        )
        if _count(job, staged, outside) == _count(job, table, outside):
            break
    else:
        raise JobError(f"{table} of {day} is being written right now: run the backfill again later")
    if _count(job, staged, of_day):
        job.client.command(f"ALTER TABLE {table} REPLACE PARTITION '{day}' FROM {staged}")
    else:
        job.client.command(f"ALTER TABLE {table} DROP PARTITION '{day}'")


def _replace_rows(job: _Backfill, day: date) -> None:
    """Deletes the stored rows of the range and inserts the staged ones. The view fills `trace_samples`."""
    parameters = job.time_range.parameters
    conditions = {table: f"toDate({column}) = '{day}' AND {within(column)}" for table, column in _TIMES.items()}
    for table, where in conditions.items():
        job.client.command(f"DELETE FROM {table} WHERE {where}", parameters=parameters, settings=DELETE)
    for table, where in conditions.items():
        if table != "trace_samples":
            job.client.command(
                f"INSERT INTO {table} SELECT * FROM {job.staging}{table} WHERE {where}",
                parameters=parameters,
                settings=insert_settings(),
            )


def _count(job: _Backfill, table: str, where: str) -> int:
    query = f"SELECT count() FROM {table} WHERE {where}"
    return int(job.client.query(query, parameters=job.time_range.parameters).result_rows[0][0])
