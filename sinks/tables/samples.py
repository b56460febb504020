"""icestream.samples as rows of `samples` and `series`."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

from icestream.clickhouse.span_operations import SPAN_NAME
from icestream.labels.request_labels import RequestLabels
from icestream.messages.checks import Labels
from icestream.messages.samples import SampleColumns
from icestream.topics import ACTIVITY
from sinks.clickhouse import stored_batches
from sinks.tables import arrow


@dataclass(frozen=True)
class SampleTables:
    """One SampleBatch: its n rows, its series as {ID: labels}, and its row of `batches`."""

    batch: stored_batches.Batch
    rows: pa.Table
    known_operation: pa.Array  # text (n,); "": not known yet
    series: dict[int, Labels]
    last_unix_nano: int
    published_unix_nano: int


@dataclass(frozen=True)
class SampleArrays:
    """n samples of k series and c contexts, of any number of batches; see SampleColumns."""

    series_id: np.ndarray
    labels: Sequence[Labels]
    contexts: np.ndarray
    time_unix_milli: np.ndarray
    series: np.ndarray
    pid: np.ndarray
    tid: np.ndarray
    stack_id: np.ndarray
    context: np.ndarray
    count: np.ndarray
    value: np.ndarray


def sample_rows(
    samples: SampleArrays, batches: Sequence[stored_batches.Batch], counts: Sequence[int], sets: RequestLabels
) -> pa.Table:
    """Returns rows of `samples`. `counts`: how many of them each batch has; they follow each other.

    Raises ValueError (pyarrow's) where a value does not fit its column.
    """
    # Context 0 is none: IDs of zeros.
    contexts = np.vstack([np.zeros((1, 24), np.uint8), samples.contexts])[samples.context]
    table = pa.table(
        {
            "profile_type": arrow.repeated([batch.profile_type for batch in batches], counts),
            "service": arrow.texts(samples.series, [_service(labels) for labels in samples.labels]),
            "series_id": samples.series_id[samples.series],
            "host_id": arrow.repeated([batch.host_id for batch in batches], counts),
            "time": arrow.milliseconds(samples.time_unix_milli),
            "pid": pa.array(samples.pid, pa.uint32()),
            "tid": pa.array(samples.tid, pa.uint32()),
            "stack_id": samples.stack_id,
            "trace_id": arrow.binary(contexts[:, :16]),
            "span_id": arrow.binary(contexts[:, 16:]),
            "count": pa.array(samples.count, pa.int32()),
            "value": pa.array(samples.value, pa.int64()),
            "request_labels": arrow.texts(samples.series, [sets.choose(labels) for labels in samples.labels]),
        }
    )
    return arrow.with_batches(table, counts, batches)


def _service(labels: Labels) -> str:
    return next((value for name, value in labels if name == "service"), "")


def sample_tables(columns: SampleColumns, sets: RequestLabels) -> SampleTables:
    """Returns the rows of a message."""
    rows = len(columns.time_unix_milli)
    batch = _batch(columns)
    arrays = {field.name: getattr(columns, field.name) for field in fields(SampleArrays)}
    return SampleTables(
        batch=batch,
        rows=sample_rows(SampleArrays(**arrays), [batch], [rows], sets),
        known_operation=_known_operation(columns),
        series=dict(zip(columns.series_id.tolist(), columns.labels, strict=True)),
        last_unix_nano=int(columns.time_unix_milli.max(initial=0)) * 10**6,
        published_unix_nano=columns.published_unix_nano,
    )


def _known_operation(columns: SampleColumns) -> pa.Array:
    """The operations of samples: those of their contexts, or else of their series
    (icestream/clickhouse/span_operations.py)."""
    of_context = np.concatenate([np.zeros(1, np.uint32), columns.context_operation])[columns.context]
    names = [dict(labels).get(SPAN_NAME, "") for labels in columns.labels]
    if not any(names):
        return arrow.texts(of_context, columns.operations)
    of_series = columns.series + len(columns.operations)
    return arrow.texts(np.where(of_context, of_context, of_series), [*columns.operations, *names])


def series_table(series: dict[int, Labels], last_unix_nano: int) -> pa.Table:
    """Returns rows of `series`."""
    return pa.table(
        {
            "series_id": pa.array(list(series), pa.uint64()),
            "labels": pa.array(list(series.values()), pa.map_(pa.string(), pa.string())),
            "last_seen": arrow.last_seen(last_unix_nano, len(series)),
        }
    )


def _batch(columns: SampleColumns) -> stored_batches.Batch:
    source, time_unix_milli = columns.source, columns.time_unix_milli
    return stored_batches.Batch(
        kind=stored_batches.CORRECTIONS if source.topic == ACTIVITY else stored_batches.SAMPLES,
        **stored_batches.identity(source.batch),
        output=source.part,
        outputs=source.parts,
        host_id=columns.host_id,
        profile_type=columns.profile_type,
        cluster=source.cluster,
        topic=source.topic,
        partition=source.partition,
        offset=source.offset,
        first_time=int(time_unix_milli.min()) if len(time_unix_milli) else columns.start_unix_milli,
        last_time=int(time_unix_milli.max()) if len(time_unix_milli) else columns.start_unix_milli,
        rows=len(time_unix_milli),
        count=int(columns.count.sum(dtype=np.int64)),
        value=int(columns.value.sum(dtype=np.int64)),
        published_time=columns.published_unix_nano // 10**6,
        period=columns.period,
        configured_period=columns.configured_period,
        lost_samples=columns.lost_samples,
        dropped_samples=columns.dropped_samples,
    )
