"""Recomputed samples have their traces already, so a sink must not add corrections by the same activity to them.

So this marks the corrections by activity that ends in the slice and lies in the job's range as stored. It leaves out
activity that reaches out of the range: the rest of its corrections may still come.
"""

from typing import Any

import pyarrow as pa

from jobs.staging.staging import BATCHES, Staging
from jobs.time_range import JobTimeRange
from sinks.clickhouse import stored_batches

_KEY = "collector, started_unix_nano, sequence, part"


def mark_corrections(staging: Staging, time_range: JobTimeRange, condition: str = "1") -> None:
    """Marks them in ClickHouse. `condition`: SQL on `host_id`, `from_unix_nano` and `to_unix_nano`."""
    staging.change(
        f"INSERT INTO {BATCHES} {_marks(staging, condition)}",
        f"({_KEY}) NOT IN (SELECT {_KEY} FROM batches"
        f" WHERE kind = '{stored_batches.CORRECTIONS}' AND output = {stored_batches.ALL_OUTPUTS}"
        f" AND (collector, started_unix_nano, sequence) {staging.globally}IN"
        f" (SELECT collector, started_unix_nano, sequence FROM {staging.table('batches')}))",
        more=_range(staging, time_range),
    )


def marks(staging: Staging, time_range: JobTimeRange, condition: str = "1") -> pa.Table:
    """Returns the rows of `batches` that mark them, for the lake."""
    return staging.client.query_arrow(
        _marks(staging, condition), parameters=_range(staging, time_range), use_strings=True
    )


def _marks(staging: Staging, condition: str) -> str:
    every = f"toUInt32({stored_batches.ALL_OUTPUTS})"
    return (
        f"SELECT * EXCEPT (from_unix_nano, to_unix_nano) REPLACE ('{stored_batches.CORRECTIONS}' AS kind,"
        f" {every} AS output, {every} AS outputs, toUInt64(0) AS rows, toInt64(0) AS count, toInt64(0) AS value)"
        f" FROM (SELECT * FROM {staging.table('batches')} WHERE kind = 'activity' AND from_unix_nano >= {{first:Int64}}"
        f" AND to_unix_nano > {{after:Int64}} AND to_unix_nano <= {{last:Int64}} AND ({condition}))"
    )


def _range(staging: Staging, time_range: JobTimeRange) -> dict[str, Any]:
    part = staging.time_range
    return {"first": time_range.start_unix_nano, "after": part.start_unix_nano, "last": part.end_unix_nano}
