"""Works through a time range slice by slice: recomputes each into staging tables, has it stored, and records that.

Slices are independent of each other. So memory and disk are bounded for any range, and a job that was killed continues
with the first slice that it had not finished.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from icestream.process.progress import Progress
from jobs.job import Job
from jobs.lake.rows import JobLake
from jobs.locks.fence import NO_FENCE, Fence
from jobs.locks.record import JobRecord
from jobs.recompute.recompute import RecomputeCounts, Unit
from jobs.recompute.sources import ArchiveSource
from jobs.recompute.workers import MakeOperators, portions
from jobs.staging.staging import Staging
from jobs.time_range import JobTimeRange
from sinks.tables.arrow import concat

_INSERT_ROWS = 50_000
"""Fewer rows wait for those of other partitions: an insert costs as much as thousands of rows."""


def _nothing(*arguments: Any) -> None:
    """Does nothing."""


@dataclass(frozen=True)
class Work:
    """What a job works with."""

    client: Client
    source: ArchiveSource
    operators: MakeOperators
    job: Job
    progress: Progress = _nothing
    check_lock: Callable[[Client], None] = _nothing
    """Raises JobError if the job may not write any more."""
    check_cut: Callable[[], None] = _nothing
    """Raises JobError if the live pipeline may store what the job stores."""
    fence: Fence = NO_FENCE
    lake: JobLake | None = None
    """The lake that the job corrects, too."""
    request_labels: tuple[str, ...] = ()
    """The names of the labels of requests."""


Store = Callable[[Staging], bool]
"""Stores what was recomputed of a slice, and returns whether the source had all of it; may be called again for the same
slice."""


@dataclass
class _Open:
    """A slice that is being recomputed."""

    staging: Staging
    units: int
    """Units that are not complete yet."""
    is_damaged: bool = False
    """Whether files of the source are."""
    waiting: dict[str, list[pa.Table]] = field(default_factory=dict)
    """Rows that are not in the staging tables yet, by table."""

    def add(self, table: str, rows: pa.Table) -> None:
        waiting = self.waiting.setdefault(table, [])
        waiting.append(rows)
        if sum(some.num_rows for some in waiting) >= _INSERT_ROWS:
            self._insert(table)

    def end_unit(self, counts: RecomputeCounts) -> None:
        self.units -= 1
        self.is_damaged |= bool(counts.damaged)

    def insert_all(self) -> Staging:
        """Returns the staging tables, which have all rows of the slice then."""
        for table in list(self.waiting):
            self._insert(table)
        return self.staging

    def _insert(self, table: str) -> None:
        rows = concat(self.waiting.pop(table))
        if rows.num_rows:
            self.staging.insert(table, rows)


def work_through(work: Work, store: Store) -> tuple[RecomputeCounts, bool]:
    """Returns what was recomputed, and whether the job continued an earlier run. Raises JobError, OSError and the
    client's errors."""
    job, total, started = work.job, RecomputeCounts(), time.monotonic()
    record = JobRecord(work.client, job.full_name, work.fence)
    resumed = record.begin(job)
    steps = record.steps()
    slices = [time_slice for time_slice in job.time_range.slices() if not record.is_finished(time_slice, steps)]
    left_ns = sum(time_slice.end_unix_nano - time_slice.start_unix_nano for time_slice in slices)
    whole_ns = job.time_range.end_unix_nano - job.time_range.start_unix_nano
    done_ns = whole_ns - left_ns
    open_slices: dict[JobTimeRange, _Open] = {}

    def report() -> None:
        took_s = time.monotonic() - started
        speed = (done_ns - whole_ns + left_ns) / 1e9 / took_s
        work.progress(
            done_ns / whole_ns,
            f"{total.samples:,} samples, {total.samples / took_s:,.0f}/s, {speed:.1f} x real time",
        )

    def close(time_slice: JobTimeRange) -> None:
        nonlocal done_ns
        opened = open_slices.pop(time_slice)
        staging = opened.insert_all()
        work.check_lock(work.client)
        work.check_cut()
        staging.wait_for_replicas()
        total.thinned |= staging.thinned_days()
        is_complete = store(staging) and not opened.is_damaged
        work.check_lock(work.client)
        work.check_cut()
        if is_complete:  # else a job that continues this one would not say what is lacking
            record.finish(time_slice)
        staging.drop()
        done_ns += time_slice.end_unix_nano - time_slice.start_unix_nano
        report()

    def units() -> Iterator[Unit]:
        for time_slice in slices:
            of_slice = _units(work.source, time_slice, last=time_slice == slices[-1])
            opened = open_slices[time_slice] = _Open(
                Staging(work.client, job.full_name, time_slice, work.fence), len(of_slice)
            )
            opened.staging.make()
            if not of_slice:
                close(time_slice)
            yield from of_slice

    report()
    results = portions(units(), work.source, work.operators, f"job/{job.full_name}", job.processes, work.request_labels)
    with closing(results):  # ends the workers, whatever happens
        for portion in results:
            opened = open_slices[portion.unit.time_range]
            if portion.rows is not None:
                opened.add(portion.table, portion.rows)
                report()
            if portion.counts is not None:
                total.add(portion.counts)
                opened.end_unit(portion.counts)
                if not opened.units:
                    close(portion.unit.time_range)
    record.forget()
    return total, resumed


def _units(source: ArchiveSource, time_slice: JobTimeRange, last: bool) -> list[Unit]:
    """Returns the units of a slice. None has many more runs than a partition has, and so none takes more memory."""
    numbers, moved = source.partitions(time_slice), sorted(source.moved_runs(time_slice))
    shares = (moved[first :: len(numbers)] for first in range(len(numbers)))
    return [
        *(Unit(time_slice, number, frozenset(moved), last) for number in numbers),
        *(Unit(time_slice, None, frozenset(share), last) for share in shares if share),
    ]
