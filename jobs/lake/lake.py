"""What a job does to the lake, slice by slice, once the same slice is in ClickHouse.

It takes the rows from the staging tables. As in ClickHouse, a row is replaced if its batch was recomputed, and
`batches` comes last. A job that was killed does the slice again; that replaces the same rows once more.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import Transaction

from icestream import ids
from icestream.columns import sorted_keys
from jobs.lake.names import add_names
from jobs.lake.pairs import Pairs
from jobs.lake.rows import JobLake, read, replace, retried
from jobs.staging.staging import Staging
from jobs.stored.names import LATE_COLUMNS
from jobs.time_range import MINUTE_S, HostMinute, JobTimeRange
from sinks.clickhouse.stored_batches import BatchKey
from sinks.lake.delta import BY_DATE, to_delta
from sinks.tables.arrow import concat

_KINDS = ("samples", "activity")
_INSERT_ROWS = 50_000


Where = Callable[[pa.ChunkedArray, np.ndarray], np.ndarray]
"""Takes hosts, and minutes in Unix seconds (n,); chooses some of them: bool (n,)."""


class StoredBatch(NamedTuple):
    """What a row of `batches` says of a batch, in ClickHouse or the lake."""

    kind: str
    collector: str
    started_unix_nano: int
    sequence: int
    part: int
    topic: str
    cluster: str  # the ID of the Kafka cluster
    partition: int
    offset: int
    host_id: str
    first_unix_milli: int
    last_unix_milli: int


def replace_all(lake: JobLake, staging: Staging, protected: Collection[HostMinute]) -> None:
    """Replaces the rows of recomputed batches; but in `protected` minutes, none. Adds the names that are lacking.

    Raises deltalake's errors, OSError and the client's errors.
    """
    add_names_and_spans(lake, staging)
    alone = Pairs(protected)
    for name in _KINDS:
        _replace_rows(lake, staging, name, lambda hosts, minutes: ~alone.has(hosts, minutes))


def replace_minutes(lake: JobLake, staging: Staging, name: str, wrong: Collection[HostMinute]) -> None:
    """Replaces the rows of recomputed batches in these minutes of hosts. Raises as `replace_all`."""
    _replace_rows(lake, staging, name, Pairs(wrong).has)


def add_names_and_spans(lake: JobLake, staging: Staging, dry_run: bool = False) -> "Counter[str]":
    """Returns how many rows each table gets, or would get. Raises as `replace_all`."""
    added = add_names(lake, staging, dry_run)
    added["spans"] = _add_spans(lake, staging, dry_run)
    return added


def stored(lake: JobLake, staging: Staging, name: str) -> Iterator[pa.Table]:
    """Yields the rows of the slice as they were before `to_delta`, but for their types. Raises as `replace_all`."""
    table = lake.open(name)
    portions: list[pa.Table] = []
    for rows in read(table, name, staging.time_range) if table else ():
        portions.append(_from_delta(name, rows))
        if sum(some.num_rows for some in portions) >= _INSERT_ROWS:
            yield concat(portions)
            portions.clear()
    if portions:
        yield concat(portions)


def _from_delta(name: str, rows: pa.Table) -> pa.Table:
    time = rows.column_names.index(BY_DATE[name])
    if rows.schema.types[time] == pa.int64():
        rows = rows.set_column(time, BY_DATE[name], rows[BY_DATE[name]].cast(pa.timestamp("ns", "UTC")))
    return rows.drop_columns("date")


def stored_batches(lake: JobLake, time_range: JobTimeRange) -> list[StoredBatch]:
    """Returns the batches that the lake has with rows in the range."""
    table = lake.open("batches")
    if table is None:
        return []
    start, end = (_moment(time_range.start_unix_nano), _moment(time_range.end_unix_nano))
    first_time, last_time = pc.field("first_time"), pc.field("last_time")
    columns = [*StoredBatch._fields[:-2], "first_time", "last_time"]
    found = table.to_pyarrow_dataset().to_table(
        columns=[*columns, "rows"],
        filter=(pc.field("rows") > 0) & (first_time < end) & (last_time >= start),
    )
    found = found.filter(pc.is_in(found["kind"], pa.array(_KINDS)))
    values = [found[name].to_pylist() for name in columns[:-2]]
    values += [(found[name].cast(pa.int64()).to_numpy() // 1000).tolist() for name in columns[-2:]]
    return [StoredBatch(*row) for row in zip(*values, strict=True)]


def add_batches(lake: JobLake, rows: pa.Table, dry_run: bool = False) -> int:
    """Adds rows of `batches` that the lake lacks; returns how many these are. Raises deltalake's errors and OSError."""
    return retried(lake, lambda: _append_lacking(lake, to_delta("batches", rows), dry_run)) if rows.num_rows else 0


def _append_lacking(lake: JobLake, rows: pa.Table, dry_run: bool) -> int:
    keys = list(zip(*(rows[name].to_pylist() for name in BatchKey._fields), strict=True))
    table = lake.open("batches")
    known: set[tuple[object, ...]] = set()
    if table is not None:
        days = [str(day) for day in pc.unique(rows["date"]).to_pylist()]
        found = table.to_pyarrow_dataset(file_pruning_predicate=[("date", "in", days)]).to_table(
            columns=list(BatchKey._fields),
            filter=(pc.field("first_time") >= pc.min(rows["first_time"]))
            & (pc.field("first_time") <= pc.max(rows["first_time"])),
        )
        known = set(zip(*(found[name].to_pylist() for name in BatchKey._fields), strict=True))
    new = rows.filter(pa.array([key not in known for key in keys], pa.bool_()))
    if new.num_rows and not dry_run:
        # If two jobs opened the table at the same time, the later one is refused: no batch is added twice.
        lake.append("batches", new, [Transaction("jobs", time.time_ns())])
    return len(new)


def _replace_rows(lake: JobLake, staging: Staging, name: str, where: Where) -> None:
    """Replaces the rows of recomputed batches where `where` is true."""
    recomputed = _recomputed(staging)

    def chosen(rows: pa.Table) -> np.ndarray:
        return where(rows["host_id"], _minutes_of(name, rows))

    def new() -> Iterator[pa.Table]:
        for rows in _staged(staging, name):
            yield rows.filter(pa.array(chosen(rows)))

    replace(lake, name, staging.time_range, lambda rows: chosen(rows) & _are_recomputed(recomputed, rows), new)


def _add_spans(lake: JobLake, staging: Staging, dry_run: bool) -> int:
    """Replaces the spans of the slice that were recomputed, if the lake lacks one of them, its operation or status.
    Returns of how many it does."""
    numbers: dict[str, int] = {}
    keys = [(_span_keys(rows), _late_keys(rows, numbers)) for rows in _staged(staging, "spans")]
    empty = np.empty(0, np.uint64)
    staged = sorted_keys.distinct(np.concatenate([empty, *(span for span, _ in keys)]))
    wanted = sorted_keys.distinct(np.concatenate([empty, *(whole for _, whole in keys)]))
    table = lake.open("spans")
    known = np.zeros(len(wanted), bool)
    if table is not None:
        for rows in read(table, "spans", staging.time_range, ["trace_id", "span_id", *LATE_COLUMNS]):
            known |= np.isin(wanted, _late_keys(rows, numbers))
    if not known.all() and not dry_run:
        replace(
            lake, "spans", staging.time_range, lambda rows: np.isin(_span_keys(rows), staged),
            lambda: _staged(staging, "spans"),
        )  # fmt: skip
    return int((~known).sum())


def _span_keys(rows: pa.Table) -> np.ndarray:
    """Returns a hash of trace ID and span ID of each row, uint64 (n,)."""
    texts = [rows[name].combine_chunks().cast(pa.binary()) for name in ("trace_id", "span_id")]
    trace, span = (
        np.frombuffer(b"".join(text.to_pylist()), np.uint64).reshape(len(rows), -1).T if len(rows) else np.empty((2, 0))
        for text in texts
    )
    return ids.combine(ids.combine(trace[0].astype(np.uint64), trace[1].astype(np.uint64)), span[0].astype(np.uint64))


def _late_keys(rows: pa.Table, numbers: dict[str, int]) -> np.ndarray:
    """Returns a hash of trace ID, span ID, operation and status of each row, uint64 (n,).

    `numbers`: of operations and statuses; hashes can be compared if the caller passes the same dictionary.
    """
    columns = [rows[name].cast(pa.string()).to_pylist() for name in LATE_COLUMNS]
    texts = map("\0".join, zip(*columns, strict=True))
    late = np.fromiter((numbers.setdefault(text, len(numbers)) for text in texts), np.uint64, len(rows))
    return ids.combine(_span_keys(rows), late)


def _staged(staging: Staging, name: str) -> Iterator[pa.Table]:
    """Yields staged rows in Delta's types, a minute at a time."""
    start, end = staging.time_range.start_unix_nano, staging.time_range.end_unix_nano
    for first in range(start, end, MINUTE_S * 10**9):
        minute = JobTimeRange(first, min(first + MINUTE_S * 10**9, end))
        rows = staging.rows(name, minute)
        if rows.num_rows:
            yield to_delta(name, rows)


def _minutes_of(name: str, rows: pa.Table) -> np.ndarray:
    """Returns the minute of each row, Unix seconds int64."""
    times = rows[BY_DATE[name]]
    seconds: np.ndarray = times.cast(pa.int64()).to_numpy() // (10**9 if times.type == pa.int64() else 10**6)
    return seconds // MINUTE_S * MINUTE_S


def _recomputed(staging: Staging) -> Pairs:
    """Returns `batch_run` and `batch_sequence` of the rows of recomputed batches, and of corrections by them."""
    rows = staging.client.query(
        "SELECT DISTINCT concat(kinds, '/', collector, '/', toString(started_unix_nano), '/', toString(part)), sequence"
        f" FROM {staging.table('batches')}"
        " ARRAY JOIN if(kind = 'activity', ['activity', 'corrections'], [kind]) AS kinds"
    ).result_rows
    return Pairs((str(run), int(sequence)) for run, sequence in rows)


def _are_recomputed(recomputed: Pairs, rows: pa.Table) -> np.ndarray:
    """Returns which rows are of recomputed batches."""
    return recomputed.has(rows["batch_run"], rows["batch_sequence"].to_numpy())


def _moment(unix_nano: int) -> pa.Scalar:
    return pa.scalar(unix_nano // 1000, pa.int64()).cast(pa.timestamp("us", "UTC"))
