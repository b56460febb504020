"""The rows of a slice in a Delta table: read, and replaced in one commit.

A reader sees the slice as it was before, or as it is after the commit. What another process appends meanwhile stays: if
it lies in the slice, Delta refuses the commit, and the job reads the slice again.

The same holds for what another job has replaced since this one opened the table: `JobLake` checks the lock whenever it
opens a table. If a job stands still after that until another one takes its range over, Delta refuses its commit. When
it opens the table again, it finds that it has lost its lock.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from jobs.time_range import JobTimeRange
from sinks.lake.delta import BY_DATE, Lake

T = TypeVar("T")
Mask = Callable[[pa.Table], np.ndarray]
"""Chooses rows: bool (n,)."""
_NANOSECONDS = ("activity", "spans")
"""The tables whose times are integers; others have timestamps in microseconds."""
_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


class JobLake(Lake):
    """The tables as a job has them."""

    def __init__(self, uri: str, check_lock: Callable[[], object]) -> None:
        """`check_lock` raises JobError if the job may not write any more."""
        super().__init__(uri)
        self._check_lock = check_lock

    def open(self, name: str) -> DeltaTable | None:
        """As of Lake; raises JobError where the job has lost its lock. All commits are to a table as opened here."""
        table = super().open(name)
        self._check_lock()  # after the table was read: what is committed later is refused
        return table


def replace(
    lake: JobLake, name: str, time_range: JobTimeRange, is_replaced: Mask, new: Callable[[], Iterator[pa.Table]]
) -> None:  # fmt: skip
    """Replaces those rows of a slice for which `is_replaced` is true by `new` ones, in Delta's types.

    Few rows of the slice are in memory at a time; all of them are in a temporary file, because deltalake cannot read
    and write at the same time. Raises deltalake's errors and OSError.
    """
    retried(lake, lambda: _replace(lake, name, time_range, is_replaced, new()))


def _replace(lake: JobLake, name: str, time_range: JobTimeRange, is_replaced: Mask, new: Iterator[pa.Table]) -> None:
    first = next(new, None)
    table = lake.open(name)
    if table is None and first is not None:
        lake.append(name, first.slice(0, 0))
        table = lake.open(name)
    if table is None:
        return
    schema = table.to_pyarrow_dataset().schema
    kept = (old.filter(pa.array(~is_replaced(old))) for old in read(table, name, time_range))
    with tempfile.TemporaryFile() as file:
        with pa.ipc.new_stream(file, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
            for rows in chain(kept, () if first is None else (first,), new):
                stream.write_table(rows.select(schema.names).cast(schema))
        file.seek(0)
        write_deltalake(table, pa.ipc.open_stream(file), mode="overwrite", predicate=_predicate(name, time_range))


def read(
    table: DeltaTable, name: str, time_range: JobTimeRange, columns: list[str] | None = None
) -> Iterator[pa.Table]:
    """Yields the rows of a slice in portions."""
    column = BY_DATE[name]
    dates = [str(day) for day in time_range.days()]
    rows = table.to_pyarrow_dataset(file_pruning_predicate=[("date", "in", dates)])
    start, end = (pa.scalar(moment, pa.int64()) for moment in _moments(name, time_range))
    if name not in _NANOSECONDS:
        start, end = (moment.cast(pa.timestamp("us", "UTC")) for moment in (start, end))
    for batch in rows.to_batches(columns=columns, filter=(pc.field(column) >= start) & (pc.field(column) < end)):
        if batch.num_rows:
            yield pa.table(batch)


def retried(lake: JobLake, attempt: Callable[[], T]) -> T:
    """Calls a function that opens a table and commits to it; again if another process has committed something in its
    way. Raises JobError if that was another job that has taken the range over."""
    for pause_s in _PAUSES_S:
        try:
            return attempt()
        except CommitFailedError:
            lake.forget()
            time.sleep(pause_s)
    return attempt()


def _moments(name: str, time_range: JobTimeRange) -> tuple[int, int]:
    """Returns start and end in the unit of the table's time: nanoseconds of intervals and spans, else microseconds."""
    unit_ns = 1 if name in _NANOSECONDS else 1000
    return time_range.start_unix_nano // unit_ns, time_range.end_unix_nano // unit_ns


def _predicate(name: str, time_range: JobTimeRange) -> str:
    """Returns the condition of a slice in Delta's SQL."""
    days = time_range.days()
    moments = [str(moment) for moment in _moments(name, time_range)]
    if name not in _NANOSECONDS:
        moments = [f"arrow_cast({moment}, 'Timestamp(Microsecond, Some(\"UTC\"))')" for moment in moments]
    column = BY_DATE[name]
    return f"date >= '{days[0]}' AND date <= '{days[-1]}' AND {column} >= {moments[0]} AND {column} < {moments[1]}"
