"""Sums of rows of the lake, by which a replay finds out where the lake lacks some."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from jobs.time_range import HostMinute
from sinks.delta import BY_DATE

MINUTE_S = 60
Sums = tuple[int, ...]


class Group(NamedTuple):
    """The samples of a profile type, or the activity of an operation, in a minute of a host."""

    host_id: str
    start_unix_s: int
    name: str
    """The profile type or the operation."""

    @property
    def minute(self) -> HostMinute:
        return HostMinute(self.host_id, self.start_unix_s)


def sums(portions: Iterator[pa.Table], name: str) -> dict[Group, Sums]:
    """Returns the sums of each group: of samples `count` and `value`; of activity the number of rows, `thread_cpu_ns`,
    and a checksum of `entry_span_id`."""
    found: dict[Group, Sums] = {}
    for rows in portions:
        names, summed = _of_samples(rows) if name == "samples" else _of_activity(rows)
        keys = {"host": rows["host_id"].cast(pa.string()), "minute": pa.array(minutes_of(name, rows)), "name": names}
        grouped = pa.table(keys | summed).group_by(list(keys)).aggregate([(column, "sum") for column in summed])
        columns = [*keys, *(f"{column}_sum" for column in summed)]
        for host_id, start_unix_s, of, *more in zip(*(grouped[c].to_pylist() for c in columns), strict=True):
            group = Group(host_id, start_unix_s, of)
            found[group] = tuple(map(sum, zip(found.get(group, (0,) * len(more)), more, strict=True)))
    return found


def _of_samples(rows: pa.Table) -> tuple[pa.ChunkedArray, dict[str, pa.ChunkedArray]]:
    """Returns the profile types of samples, and what is summed up."""
    return rows["profile_type"].cast(pa.string()), {"count": rows["count"], "value": rows["value"]}


def _of_activity(rows: pa.Table) -> tuple[pa.ChunkedArray, dict[str, Any]]:
    """Returns the operations of intervals, and what is summed up. The table of an earlier version lacks columns."""
    length, there = len(rows), rows.column_names
    operations = rows["operation"].cast(pa.string()).fill_null("") if "operation" in there else pa.array([""] * length)
    entries = rows["entry_span_id"].cast(pa.binary()).fill_null(b"").to_pylist() if "entry_span_id" in there else []
    checksums = np.array([int.from_bytes(entry[-4:]) for entry in entries] or [0] * length, np.int64)
    return operations, {
        "count": pa.array(np.ones(length, np.int64)), "value": rows["thread_cpu_ns"], "entries": pa.array(checksums),
    }  # fmt: skip


def minutes_of(name: str, rows: pa.Table) -> np.ndarray:
    """Returns the minute of each row, Unix seconds int64."""
    times = rows[BY_DATE[name]]
    seconds: np.ndarray = times.cast(pa.int64()).to_numpy() // (10**9 if times.type == pa.int64() else 10**6)
    return seconds // MINUTE_S * MINUTE_S
