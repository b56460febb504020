"""icestream.activity: ActivityBatch to the columns of `activity` and `spans`."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from icestream.topics import ACTIVITY
from icestream.v1.activity_pb2 import ActivityBatch
from sinks import stored_batches
from sinks.tables import arrow as c


@dataclass(frozen=True)
class Activity:
    """One ActivityBatch."""

    batch: stored_batches.Batch
    intervals: pa.Table
    spans: pa.Table
    published_unix_nano: int


def decode(data: bytes | None, cluster: str, partition: int, offset: int) -> Activity:
    """From a message at this place; raises BadMessage."""
    message = c.parse(ActivityBatch, data)
    if max(message.start_unix_nano, message.published_unix_nano) >= c.MAX_UNIX_NANO:
        raise c.BadMessage("start_unix_nano or published_unix_nano after 2100")
    start, duration, cpu, pid, tid, context, service = c.columns(
        message, "interval_start_offset_ns", "interval_duration_ns", "interval_thread_cpu_ns", "interval_pid",
        "interval_tid", "interval_context", "interval_service",
    )  # fmt: skip
    traces = c.ids(message.context_trace_ids, 16, "context_trace_ids")
    spans = c.ids(message.context_span_ids, 8, "context_span_ids")
    if len(traces) != len(spans):
        raise c.BadMessage(f"{len(traces)} trace IDs, but {len(spans)} span IDs")
    c.check_rows(context, len(traces), "interval_context")
    strings = c.text_list(list(message.strings))
    c.check_rows(service, len(strings), "interval_service")
    if len(start) and int(np.abs(start.astype(np.float64)).max()) > c.MAX_UNIX_NANO:
        raise c.BadMessage("interval_start_offset_ns is more than a century away")
    begin = start + np.int64(message.start_unix_nano)
    c.check_times(begin)
    intervals = pa.table(
        {
            "trace_id": c.binary(traces[context]),
            "span_id": c.binary(spans[context]),
            "host_id": c.constant(message.host_id, len(begin)),
            "service": c.texts(service, strings),
            "pid": pid,
            "tid": tid,
            "start_time": pa.array(begin, pa.timestamp("ns", "UTC")),
            "duration_ns": duration,
            "thread_cpu_ns": cpu,
        }
    )
    batch = _batch(message, begin, cpu, cluster, partition, offset)
    return Activity(batch, intervals, _spans(message), message.published_unix_nano)


def _spans(message: ActivityBatch) -> pa.Table:
    """A span is an application's own message, so this is a Python loop; there are few."""
    for span in message.spans:
        if len(span.trace_id) != 16 or len(span.span_id) != 8 or len(span.parent_span_id) not in (0, 8):
            raise c.BadMessage("a span whose IDs are not 16 and 8 bytes long")
        if max(span.start_unix_nano, span.end_unix_nano) >= c.MAX_UNIX_NANO:
            raise c.BadMessage("a span after 2100")
    start = np.array([span.start_unix_nano for span in message.spans], np.int64)
    end = np.array([span.end_unix_nano for span in message.spans], np.int64)
    c.check_times(start)
    return pa.table(
        {
            "trace_id": pa.array([span.trace_id for span in message.spans], pa.binary(16)),
            "span_id": pa.array([span.span_id for span in message.spans], pa.binary(8)),
            "parent_span_id": pa.array([span.parent_span_id or bytes(8) for span in message.spans], pa.binary(8)),
            "name": pa.array([span.name for span in message.spans], pa.string()),
            "service": pa.array([span.service for span in message.spans], pa.string()).dictionary_encode(),
            "host_id": c.constant(message.host_id, len(start)),
            "start_time": pa.array(start, pa.timestamp("ns", "UTC")),
            "end_time": pa.array(end, pa.timestamp("ns", "UTC")),
        }
    )


def _batch(
    message: ActivityBatch, begin: np.ndarray, cpu: np.ndarray, cluster: str, partition: int, offset: int
) -> stored_batches.Batch:
    ms = begin // 10**6 if len(begin) else np.array([message.start_unix_nano // 10**6], np.int64)
    return stored_batches.Batch(
        kind=stored_batches.ACTIVITY,
        **stored_batches.identity(message.id, cluster, ACTIVITY, partition, offset),
        output=0, outputs=1, host_id=message.host_id, profile_type="",
        cluster=cluster, topic=ACTIVITY, partition=partition, offset=offset,
        first_time=int(ms.min()), last_time=int(ms.max()), rows=len(begin), count=len(begin),
        value=int(cpu.sum(dtype=np.uint64).astype(np.int64)), published_time=message.published_unix_nano // 10**6,
    )  # fmt: skip
