"""Recomputed samples have their traces already, so the sink must not add corrections by the same activity to them."""

from jobs.staging import Staging
from jobs.time_range import TimeRange
from sinks import stored_batches


def mark_corrections(staging: Staging, time_range: TimeRange, condition: str = "1") -> None:
    """Marks the corrections by activity that ends in the slice, and lies in the job's range, as stored.

    Activity that reaches out of the range is left out: the rest of its corrections may still come. `condition`: SQL on
    `host_id`, `from_unix_nano` and `to_unix_nano`.
    """
    key = "collector, started_unix_nano, sequence, part"
    part = staging.time_range
    staging.change(
        "INSERT INTO batches (kind, output, outputs, rows, count, value, block, collector, started_unix_nano, sequence,"
        " part, parts, host_id, profile_type, cluster, topic, partition, offset, first_time, last_time, published_time)"
        f" SELECT '{stored_batches.CORRECTIONS}', {stored_batches.ALL_OUTPUTS}, 0, 0, 0, 0, block, collector,"
        " started_unix_nano, sequence, part, parts, host_id, profile_type, cluster, topic, partition, offset,"
        f" first_time, last_time, published_time FROM {staging.table('batches')}",
        "kind = 'activity' AND from_unix_nano >= {first:Int64}"
        " AND to_unix_nano > {after:Int64} AND to_unix_nano <= {last:Int64}"
        f" AND ({condition}) AND ({key}) NOT IN (SELECT {key} FROM batches"
        f" WHERE kind = 'corrections' AND output = {stored_batches.ALL_OUTPUTS}"
        f" AND (collector, started_unix_nano, sequence) IN"
        f" (SELECT collector, started_unix_nano, sequence FROM {staging.table('batches')}))",
        more={"first": time_range.start_unix_nano, "after": part.start_unix_nano, "last": part.end_unix_nano},
    )
