"""icestream.samples: SampleBatch as columns."""

from dataclasses import dataclass

import numpy as np

from icestream.messages import checks
from icestream.messages.checks import Labels
from icestream.messages.plausible import ANY_TIME, Times
from icestream.v1.common_pb2 import Source
from icestream.v1.samples_pb2 import SampleBatch

_MS = 10**6


@dataclass(frozen=True)
class SampleColumns:
    """A checked SampleBatch: n samples, k series, c contexts. Every index is in range."""

    source: Source
    host_id: str
    profile_type: str
    published_unix_nano: int
    start_unix_milli: int
    series_id: np.ndarray  # uint64 (k,)
    labels: list[Labels]  # of each series
    contexts: np.ndarray  # uint8 (c, 24): trace ID, span ID
    operations: list[str]  # operations[0] is ""
    context_operation: np.ndarray  # uint32 (c,), index into operations; 0: not known
    time_unix_milli: np.ndarray  # int64 (n,)
    series: np.ndarray  # uint32 (n,), row of series_id and labels
    pid: np.ndarray  # uint32 (n,)
    tid: np.ndarray  # uint32 (n,)
    stack_id: np.ndarray  # uint64 (n,), 0: no stack
    context: np.ndarray  # uint32 (n,), 0: none, else row + 1 of contexts
    count: np.ndarray  # int32 (n,)
    value: np.ndarray  # int64 (n,)
    period: int
    configured_period: int
    lost_samples: int
    dropped_samples: int


def decode_samples(data: bytes | None, times: Times = ANY_TIME) -> SampleColumns:
    """Raises BadMessage."""
    message = checks.parse(SampleBatch, data)
    _check_source(message.source)
    checks.check_id("host_id", message.host_id)
    checks.check_profile_type(message.profile_type)
    times.check_or_zero("published_unix_nano", message.published_unix_nano)
    times.check_or_zero("start_unix_milli", message.start_unix_milli * _MS)  # without samples, it may be 0
    for name in ("lost_samples", "dropped_samples"):
        checks.check_most(name, getattr(message, name), checks.MAX_COUNT)
    for name in ("period", "configured_period"):
        checks.check_most(name, getattr(message, name), checks.MAX_PERIOD)
    contexts = checks.contexts(message.context_trace_ids, message.context_span_ids)
    operations = checks.strings(message.operations)
    for operation in operations:
        checks.check_text("operations", operation, least=0)
    context_operation = checks.column(message, "context_operation", len(contexts), 0)
    checks.check_index("context_operation", context_operation, len(operations))
    names = ("offset_ms", "series", "pid", "tid", "stack_id", "context", "count", "value")
    offset_ms, series, pid, tid, stack_id, context, count, value = checks.columns(
        message, *(f"sample_{name}" for name in names)
    )
    checks.check_index("sample_series", series, len(message.series))
    checks.check_index("sample_context", context, len(contexts) + 1)
    time_unix_milli = offset_ms.astype(np.int64) + message.start_unix_milli
    times.check_column("sample_offset_ms", time_unix_milli * _MS)
    checks.check_sum("sample_value", value)
    return SampleColumns(
        source=message.source,
        host_id=message.host_id,
        profile_type=message.profile_type,
        published_unix_nano=message.published_unix_nano,
        start_unix_milli=message.start_unix_milli,
        series_id=np.array([series.id for series in message.series], np.uint64),
        labels=checks.labels(message.series),
        contexts=contexts,
        operations=operations,
        context_operation=context_operation,
        time_unix_milli=time_unix_milli,
        series=series,
        pid=pid,
        tid=tid,
        stack_id=stack_id,
        context=context,
        count=count,
        value=value,
        period=message.period,
        configured_period=message.configured_period,
        lost_samples=message.lost_samples,
        dropped_samples=message.dropped_samples,
    )


def _check_source(source: Source) -> None:
    checks.check_batch_id("source.batch", source.batch)
    checks.check_id("source.cluster", source.cluster)
    checks.check_id("source.topic", source.topic)
    checks.check_most("source.partition", source.partition, 2**31 - 1)
    checks.check_most("source.offset", source.offset, checks.MAX_OFFSET)
    checks.check_part("source", source.part, source.parts)
