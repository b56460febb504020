"""Messages of the topics, made up from a few numbers."""

import numpy as np

from icestream import packed
from icestream.ids import series_id
from icestream.messages.message_id import MessageId
from icestream.topics import ACTIVITY, DEFAULT_PROFILE_TYPE, RAW
from icestream.v1.activity_pb2 import ActivityBatch, Span
from icestream.v1.common_pb2 import BatchId, Label, Mapping, Series, Source
from icestream.v1.samples_pb2 import SampleBatch
from icestream.v1.stacks_pb2 import StackBatch
from sinks.ranges import InFlight, MessageRange
from sinks.tables.decode import Tables, decode

START_MS = 1_770_000_000_000
PERIOD = 10_000_000


def batch_id(sequence: int, host: str = "host-1") -> BatchId:
    return BatchId(collector=host, started_unix_nano=77, sequence=sequence, part=0, parts=1)


def sample_batch(sequence: int, rows: int = 5, host: str = "host-1", correction: bool = False, **source: int) -> bytes:
    """Samples of one window of 5 s, every other one in the trace of the window."""
    labels = [("host", host), ("service", "checkout")]
    message = SampleBatch(
        source=Source(
            batch=batch_id(sequence, host), cluster="C", topic=ACTIVITY if correction else RAW, partition=0,
            offset=sequence, **({"part": 0, "parts": 1} | source),
        ),
        host_id=host, profile_type=DEFAULT_PROFILE_TYPE, published_unix_nano=(START_MS + sequence * 5000) * 10**6,
        start_unix_milli=START_MS + sequence * 5000,
        series=[Series(id=series_id(labels), labels=[Label(name=n, value=v) for n, v in labels])],
        context_trace_ids=sequence.to_bytes(16, "big"), context_span_ids=sequence.to_bytes(8, "big"),
    )  # fmt: skip
    sign = np.where(np.arange(rows) % 2 == 0, -1, 1) if correction else np.ones(rows)
    return packed.serialize(
        message,
        {
            "sample_offset_ms": np.arange(rows),
            "sample_series": np.zeros(rows),
            "sample_pid": np.full(rows, 100),
            "sample_tid": np.arange(rows) % 3,
            "sample_stack_id": np.arange(rows) % 7 + 1,
            "sample_context": np.arange(rows) % 2,
            "sample_count": sign,
            "sample_value": sign * PERIOD,
        },
    )


def stack_batch(version: int = 0, names: list[str] | None = None, build_id: str = "gnu:aa") -> bytes:
    """Nodes 1..n in a chain, locations 11..10+n at addresses 4096.., each with the line named by `names`, or none."""
    names = names or []
    n = len(names) or 2
    message = StackBatch(
        published_unix_nano=START_MS * 10**6, seen_unix_nano=START_MS * 10**6, strings=["", "app.c", *names],
        mappings=[Mapping(), Mapping(kind=Mapping.FILE, build_id=build_id, file="/bin/app")],
    )  # fmt: skip
    return packed.serialize(
        message,
        {
            "node_id": np.arange(1, n + 1), "node_parent_id": np.arange(n), "node_location_id": np.arange(11, 11 + n),
            "location_id": np.arange(11, 11 + n), "location_mapping": np.ones(n),
            "location_address": 4096 + 16 * np.arange(n), "location_version": np.full(n, version),
            "location_line_count": np.full(n, 1 if names else 0), "line_function": np.arange(2, 2 + len(names)),
            "line_file": np.ones(len(names)), "line_number": np.arange(len(names)) + 7,
            "line_start_line": np.ones(len(names)),
        },
    )  # fmt: skip


def activity_batch(sequence: int, rows: int = 3, host: str = "host-1") -> bytes:
    """Intervals of 1 ms of one trace, and its span."""
    trace, span = sequence.to_bytes(16, "big"), sequence.to_bytes(8, "big")
    start = (START_MS + sequence * 5000) * 10**6
    message = ActivityBatch(
        id=batch_id(sequence, host), host_id=host, complete_unix_nano=start, published_unix_nano=start,
        start_unix_nano=start, strings=["", "checkout"], context_trace_ids=trace, context_span_ids=span,
        spans=[Span(trace_id=trace, span_id=span, name="GET /", service="checkout", start_unix_nano=start,
                    end_unix_nano=start + 10**9)],
    )  # fmt: skip
    return packed.serialize(
        message,
        {
            "interval_start_offset_ns": np.arange(rows) * 2_000_000 - 500,
            "interval_duration_ns": np.full(rows, 1_000_000),
            "interval_thread_cpu_ns": np.full(rows, 900_000), "interval_pid": np.full(rows, 100),
            "interval_tid": np.full(rows, 7), "interval_context": np.zeros(rows), "interval_service": np.ones(rows),
        },
    )  # fmt: skip


def tables(topic: str, data: bytes) -> Tables:
    """A message as tables."""
    return decode(data, MessageId("C", topic, 0, 0))


def make_range(
    topic: str, messages: list[Tables], first: int = 0, retried: bool = False, nonce: str = "0" * 12
) -> MessageRange[Tables]:
    offsets = InFlight(first, first + max(len(messages), 1) - 1, nonce)
    return MessageRange("C", topic, 0, offsets, messages, retried)
