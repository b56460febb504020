"""icestream.activity as rows of `activity` and `spans`."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from icestream.columns import index_ranges
from icestream.columns.message_columns import join
from icestream.messages.activity import STATUSES, ActivityColumns
from icestream.messages.message_id import MessageId
from sinks.clickhouse import stored_batches
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
    batch = activity_batch(columns, message_id)
    intervals = interval_rows([columns], [batch])
    return ActivityTables(batch, intervals, span_rows([columns]), columns.published_unix_nano)


def interval_rows(messages: Sequence[ActivityColumns], batches: Sequence[stored_batches.Batch]) -> pa.Table:
    """Returns rows of `activity` of one or more messages, whose rows of `batches` are given."""
    counts = [len(one.start_unix_nano) for one in messages]
    contexts = np.concatenate([one.contexts[one.context] for one in messages])
    strings = list(chain.from_iterable(one.strings for one in messages))
    first_string = index_ranges.starts(np.array([len(one.strings) for one in messages]))
    service = np.concatenate([one.service + first for one, first in zip(messages, first_string, strict=True)])
    labels = np.concatenate([one.labels + first for one, first in zip(messages, first_string, strict=True)])
    operation = np.concatenate(
        [one.operation[one.context] + first for one, first in zip(messages, first_string, strict=True)]
    )
    entry = np.concatenate([one.entry_span_ids[one.context] for one in messages])
    columns = {
        name: np.concatenate([getattr(one, name) for one in messages])
        for name in ("start_unix_nano", "pid", "tid", "duration_ns", "thread_cpu_ns")
    }
    table = pa.table(
        {
            "trace_id": arrow.binary(contexts[:, :16]),
            "span_id": arrow.binary(contexts[:, 16:]),
            "host_id": arrow.repeated([one.host_id for one in messages], counts),
            "service": arrow.texts(service, strings),
            "pid": columns["pid"],
            "tid": columns["tid"],
            "start_time": pa.array(columns["start_unix_nano"], pa.timestamp("ns", "UTC")),
            "duration_ns": columns["duration_ns"],
            "thread_cpu_ns": columns["thread_cpu_ns"],
            "operation": arrow.texts(operation, strings),
            "entry_span_id": arrow.binary(entry),
            "request_labels": arrow.texts(labels, strings),
        }
    )
    return arrow.with_batches(table, counts, batches)


def span_rows(messages: Sequence[ActivityColumns]) -> pa.Table:
    """Returns rows of `spans` of one or more messages."""

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(one.spans, name) for one in messages])

    def texts(name: str) -> pa.Array:
        return arrow.strings(join([getattr(one.spans, name) for one in messages]))

    return pa.table(
        {
            "trace_id": arrow.binary(joined("trace_id")),
            "span_id": arrow.binary(joined("span_id")),
            "parent_span_id": arrow.binary(joined("parent_span_id")),
            "name": texts("name"),
            "service": texts("service").dictionary_encode(),
            "host_id": arrow.repeated([one.host_id for one in messages], [len(one.spans.status) for one in messages]),
            "start_time": pa.array(joined("start_unix_nano"), pa.timestamp("ns", "UTC")),
            "end_time": pa.array(joined("end_unix_nano"), pa.timestamp("ns", "UTC")),
            "operation": texts("operation").dictionary_encode(),
            "status": arrow.texts(joined("status"), STATUSES),
            "request_labels": texts("labels").dictionary_encode(),
        }
    )


def activity_batch(columns: ActivityColumns, message_id: MessageId) -> stored_batches.Batch:
    """Returns the row of `batches` of a message."""
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
