"""icestream.samples: SampleBatch to the columns of `samples` and `series`."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from icestream.topics import ACTIVITY
from icestream.v1.samples_pb2 import SampleBatch
from sinks import stored_batches
from sinks.tables import arrow as c


@dataclass(frozen=True)
class Samples:
    """One SampleBatch: its rows, its series as {ID: labels}, and what is remembered of it."""

    batch: stored_batches.Batch
    rows: pa.Table
    series: dict[int, dict[str, str]]
    last_unix_nano: int
    published_unix_nano: int


def decode(data: bytes | None) -> Samples:
    """Raises BadMessage."""
    message = c.parse(SampleBatch, data)
    time_ms, series, pid, tid, stack, context, count, value = c.columns(
        message, "sample_offset_ms", "sample_series", "sample_pid", "sample_tid", "sample_stack_id", "sample_context",
        "sample_count", "sample_value",
    )  # fmt: skip
    traces = c.ids(message.context_trace_ids, 16, "context_trace_ids")
    spans = c.ids(message.context_span_ids, 8, "context_span_ids")
    if len(traces) != len(spans):
        raise c.BadMessage(f"{len(traces)} trace IDs, but {len(spans)} span IDs")
    c.check_rows(series, len(message.series), "series")
    c.check_rows(context, len(traces) + 1, "context")
    if message.start_unix_milli >= c.MAX_UNIX_NANO // 10**6 or message.published_unix_nano >= c.MAX_UNIX_NANO:
        raise c.BadMessage("start_unix_milli or published_unix_nano after 2100")
    time_unix_milli = time_ms.astype(np.int64) + message.start_unix_milli
    c.check_times(time_unix_milli * 10**6)
    series_ids = np.array([s.id for s in message.series], np.uint64)
    labels = [{label.name: label.value for label in s.labels} for s in message.series]
    n = len(time_unix_milli)
    rows = pa.table(
        {
            "profile_type": c.constant(message.profile_type, n),
            "service": c.texts(series, [of.get("service", "") for of in labels]),
            "series_id": series_ids[series] if n else series_ids[:0],
            "host_id": c.constant(message.host_id, n),
            "time": c.milliseconds(time_unix_milli),
            "pid": pid,
            "tid": tid,
            "stack_id": stack,
            "trace_id": c.binary(np.vstack([np.zeros((1, 16), np.uint8), traces])[context]),
            "span_id": c.binary(np.vstack([np.zeros((1, 8), np.uint8), spans])[context]),
            "count": count,
            "value": value,
        }
    )
    return Samples(
        batch=_batch(message, time_unix_milli, count, value),
        rows=rows,
        series=dict(zip(series_ids.tolist(), labels, strict=True)),
        last_unix_nano=int(time_unix_milli.max(initial=0)) * 10**6,
        published_unix_nano=message.published_unix_nano,
    )


def series_table(series: dict[int, dict[str, str]], last_unix_nano: int) -> pa.Table:
    """Rows of `series`."""
    kind = pa.map_(pa.string(), pa.string())
    return pa.table(
        {
            "series_id": pa.array(list(series), pa.uint64()),
            "labels": pa.array([list(labels.items()) for labels in series.values()], kind),
            "last_seen": c.last_seen(last_unix_nano, len(series)),
        }
    )


def _batch(
    message: SampleBatch, time_unix_milli: np.ndarray, count: np.ndarray, value: np.ndarray
) -> stored_batches.Batch:
    source = message.source
    start = int(message.start_unix_milli)
    place = (source.cluster, source.topic, source.partition, source.offset)
    return stored_batches.Batch(
        kind=stored_batches.CORRECTIONS if source.topic == ACTIVITY else stored_batches.SAMPLES,
        **stored_batches.identity(source.batch, *place),
        output=source.part, outputs=max(source.parts, 1),
        host_id=message.host_id, profile_type=message.profile_type,
        cluster=source.cluster, topic=source.topic, partition=source.partition, offset=source.offset,
        first_time=int(time_unix_milli.min()) if len(time_unix_milli) else start,
        last_time=int(time_unix_milli.max()) if len(time_unix_milli) else start,
        rows=len(time_unix_milli), count=int(count.sum(dtype=np.int64)), value=int(value.sum(dtype=np.int64)),
        published_time=message.published_unix_nano // 10**6,
    )  # fmt: skip
