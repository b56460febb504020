"""icestream.activity as rows of `activity` and `spans`."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from icestream.messages.activity import ActivityColumns
from icestream.messages.message_id import MessageId
from sinks import stored_batches
from sinks.tables import arrow


@dataclass(frozen=True)
class ActivityTables:
    """One ActivityBatch, and its row of `batches`."""

    batch: stored_batches.Batch
    intervals: pa.Table
    spans: pa.Table
    published_unix_nano: int


def activity_tables(columns: ActivityColumns, message_id: MessageId) -> ActivityTables:
    """Returns the rows of a message."""
    contexts = columns.contexts[columns.context]
    intervals = pa.table(
        {
            "trace_id": arrow.binary(contexts[:, :16]),
            "span_id": arrow.binary(contexts[:, 16:]),
            "host_id": arrow.constant(columns.host_id, len(contexts)),
            "service": arrow.texts(columns.service, columns.strings),
            "pid": columns.pid,
            "tid": columns.tid,
            "start_time": pa.array(columns.start_unix_nano, pa.timestamp("ns", "UTC")),
            "duration_ns": columns.duration_ns,
            "thread_cpu_ns": columns.thread_cpu_ns,
        }
    )
    batch = _batch(columns, message_id)
    intervals = arrow.with_batch(intervals, batch.run, batch.sequence)
    return ActivityTables(batch, intervals, _spans(columns), columns.published_unix_nano)


def _spans(columns: ActivityColumns) -> pa.Table:
    """Returns rows of `spans`, in a Python loop: there are few spans in a message."""
    spans = columns.spans
    start = np.array([span.start_unix_nano for span in spans], np.int64)
    end = np.array([span.end_unix_nano for span in spans], np.int64)
    return pa.table(
        {
            "trace_id": pa.array([span.trace_id for span in spans], pa.binary(16)),
            "span_id": pa.array([span.span_id for span in spans], pa.binary(8)),
            "parent_span_id": pa.array([span.parent_span_id or bytes(8) for span in spans], pa.binary(8)),
            "name": pa.array([span.name for span in spans], pa.string()),
            "service": pa.array([span.service for span in spans], pa.string()).dictionary_encode(),
            "host_id": arrow.constant(columns.host_id, len(spans)),
            "start_time": pa.array(start, pa.timestamp("ns", "UTC")),
            "end_time": pa.array(end, pa.timestamp("ns", "UTC")),
        }
    )


def _batch(columns: ActivityColumns, message_id: MessageId) -> stored_batches.Batch:
    rows = len(columns.start_unix_nano)
    times = columns.start_unix_nano if rows else np.array([columns.reference_unix_nano])
    return stored_batches.Batch(
        kind=stored_batches.ACTIVITY,
        **stored_batches.identity(columns.id),
        output=0,
        outputs=1,
        host_id=columns.host_id,
        profile_type="",
        cluster=message_id.cluster,
        topic=message_id.topic,
        partition=message_id.partition,
        offset=message_id.offset,
        first_time=int(times.min()) // 10**6,
        last_time=int(times.max()) // 10**6,
        rows=rows,
        count=rows,
        value=int(columns.thread_cpu_ns.sum(dtype=np.uint64)),
        published_time=columns.published_unix_nano // 10**6,
    )
