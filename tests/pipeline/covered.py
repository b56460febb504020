"""Whether samples on traces lie in the intervals of these traces and have their operation, by what is in the topics."""

from collections import defaultdict
from collections.abc import Set

import numpy as np

from icestream.columns import packed
from icestream.messages.samples import decode_samples
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, SAMPLES
from icestream.v1.activity_pb2 import ActivityBatch
from icestream.v1.samples_pb2 import SampleBatch
from tests.pipeline.reading import messages


def outside_intervals(settings: KafkaSettings, traces: Set[bytes]) -> tuple[int, int]:
    """Returns how many rows of samples are on these traces, corrections included, and how many of them are in no
    interval of their trace on their thread, to the millisecond of the topic.

    The collector also sees the contexts of what others run beside it, which send their intervals to others.
    """
    intervals: dict[tuple[int, bytes], list[tuple[int, int]]] = defaultdict(list)
    for message in messages(settings, ACTIVITY):
        batch = ActivityBatch.FromString(message.value() or b"")
        start = packed.column(batch, "interval_start_offset_ns") + batch.start_unix_nano
        end = start + packed.column(batch, "interval_duration_ns").astype(np.int64)
        for row, (tid, context) in enumerate(zip(batch.interval_tid, batch.interval_context, strict=True)):
            trace = batch.context_trace_ids[16 * context : 16 * context + 16]
            if trace in traces:
                intervals[tid, trace].append((int(start[row]) // 10**6, int(end[row]) // 10**6))
    samples = outside = 0
    for message in messages(settings, SAMPLES):
        batch = SampleBatch.FromString(message.value() or b"")
        for row, context in enumerate(batch.sample_context):
            trace = batch.context_trace_ids[16 * (context - 1) : 16 * context] if context else b""
            if trace in traces:
                samples += 1
                at = batch.start_unix_milli + batch.sample_offset_ms[row]
                outside += not any(start <= at <= end for start, end in intervals[batch.sample_tid[row], trace])
    return samples, outside


def with_operation(settings: KafkaSettings, traces: Set[bytes]) -> int:
    """Returns how many samples of these traces had their operation when they were published, without what corrections
    took back."""
    count = 0
    for message in messages(settings, SAMPLES):
        columns = decode_samples(message.value())
        is_known = [
            context[:16].tobytes() in traces and operation > 0
            for context, operation in zip(columns.contexts, columns.context_operation.tolist(), strict=True)
        ]
        count += int(columns.count[np.array([False, *is_known])[columns.context]].sum())
    return count
