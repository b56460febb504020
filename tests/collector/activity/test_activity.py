"""Activity as batches: every interval and span once, with its context, in Unix time."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collector.activity import activity_batch as activity
from collector.activity.intervals import ActivityIntervals
from icestream.columns.packed import column
from icestream.messages.raw_encoder import HEADER_BYTES
from icestream.v1.activity_pb2 import ActivityBatch, Span
from icestream.v1.common_pb2 import BatchId

OFFSET = 1_700_000_000 * 10**9
TRACES, SPANS = bytes(range(64)), bytes(range(100, 132))
rows = st.lists(
    st.tuples(
        st.integers(0, 2**50), st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 3), st.integers(0, 2)
    ),
    max_size=40,
)


def to_intervals(found: list[tuple[int, int, int, int, int]], spans: list[Span]) -> ActivityIntervals:
    columns = list(zip(*found, strict=True)) or [()] * 5
    return ActivityIntervals(
        start_monotonic_ns=np.array(columns[0], np.uint64),
        duration_ns=np.array(columns[1], np.uint64),
        thread_cpu_ns=np.array(columns[2], np.uint64),
        pid=np.arange(len(found), dtype=np.uint32),
        tid=np.arange(len(found), dtype=np.uint32),
        context=np.array(columns[3], np.uint32),
        service=np.array(columns[4], np.uint32),
        trace_ids=TRACES,
        span_ids=SPANS,
        strings=["", "a", "b"],
        spans=spans,
        dropped=4,
    )


@given(rows, st.integers(0, 10), st.sampled_from([400, 2000, 900_000]))
def test_every_interval_and_span_is_in_one_part(
    found: list[tuple[int, int, int, int, int]], spans: int, room: int
) -> None:
    ended = [Span(name=f"span {i}", start_unix_nano=i, end_unix_nano=i + 1) for i in range(spans)]
    intervals = to_intervals(found, ended)
    parts = activity.split(intervals, OFFSET, ActivityBatch(host_id="h"), HEADER_BYTES + room)
    finished = activity.finish(parts, BatchId(collector="h", sequence=2), 9)
    read: Counter[tuple[object, ...]] = Counter()
    names: Counter[tuple[str, int]] = Counter()
    messages = [ActivityBatch.FromString(value) for value in finished]
    assert [m.id.part for m in messages] == list(range(len(messages)))
    assert sum(m.dropped for m in messages) == 4
    for value, message in zip(finished, messages, strict=True):
        assert len(value) <= HEADER_BYTES + room
        assert (message.id.parts, message.host_id) == (len(messages), "h")
        names.update((span.name, span.start_unix_nano) for span in message.spans)
        starts = (column(message, "interval_start_offset_ns") + message.start_unix_nano).tolist()
        for i, start in enumerate(starts):
            context = message.interval_context[i]
            read[
                start,
                message.interval_duration_ns[i],
                message.interval_thread_cpu_ns[i],
                message.context_trace_ids[16 * context : 16 * context + 16],
                message.context_span_ids[8 * context : 8 * context + 8],
                message.strings[message.interval_service[i]],
                message.interval_tid[i],
            ] += 1
    assert names == Counter((f"span {i}", i + OFFSET) for i in range(spans))
    assert read == Counter(
        (s + OFFSET, d, c, TRACES[16 * x : 16 * x + 16], SPANS[8 * x : 8 * x + 8], ["", "a", "b"][v], i)
        for i, (s, d, c, x, v) in enumerate(found)
    )


def test_times_that_cannot_be_are_bounded_not_fatal() -> None:
    intervals = to_intervals(
        [(2**64 - 1, 2**64 - 1, 2**64 - 1, 0, 0), (0, 0, 0, 0, 0)], [Span(start_unix_nano=2**64 - 1)]
    )
    for offset in (OFFSET, -(2**60)):
        [part] = activity.split(intervals, offset, ActivityBatch())
        assert len(ActivityBatch.FromString(part).interval_start_offset_ns) == 2
