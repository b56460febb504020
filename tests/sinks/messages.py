"""Messages of the topics for tests of sinks, from a few numbers."""

import numpy as np

from icestream.messages.message_id import MessageId
from icestream.topics import ACTIVITY, RAW
from icestream.v1.activity_pb2 import Span
from icestream.v1.common_pb2 import Mapping
from sinks.runner.ranges import InFlight, MessageRange
from sinks.tables.decode import Tables, decode
from tests.data import messages as builders
from tests.data.messages import PERIOD_NS, batch_id, context

START_MS = 1_770_000_000_000


def sample_batch(
    sequence: int, rows: int = 5, host: str = "host-1", correction: bool = False, span_name: str = "", **source: int
) -> bytes:
    """Samples of one window of 5 s, every other one in the trace of the window. `span_name`: a label of the series."""
    sign = np.where(np.arange(rows) % 2 == 0, -1, 1) if correction else np.ones(rows)
    start = START_MS + sequence * 5000
    topic = ACTIVITY if correction else RAW
    labels = {"host": host, "service": "checkout"} | ({"span_name": span_name} if span_name else {})
    return builders.sample_batch(
        builders.source(batch_id(sequence, host), topic, offset=sequence, **source), start,
        {
            "sample_offset_ms": np.arange(rows), "sample_tid": np.arange(rows) % 3,
            "sample_stack_id": np.arange(rows) % 7 + 1, "sample_context": np.arange(rows) % 2, "sample_count": sign,
            "sample_value": sign * PERIOD_NS, "context_operation": np.full(1, 1),
        },
        published_unix_nano=start * 10**6, operations=["", "GET /"],
        series=[builders.sample_series(labels)],
        **builders.contexts([context(sequence)]),
    )  # fmt: skip


def stack_batch(version: int = 0, names: list[str] | None = None, build_id: str = "gnu:aa") -> bytes:
    """Nodes 1..n in a chain, locations 11..10+n at addresses 4096.., each with the line named by `names`, or none."""
    names = names or []
    n = len(names) or 2
    return builders.stack_batch(
        {
            "node_id": np.arange(1, n + 1), "node_parent_id": np.arange(n), "node_location_id": np.arange(11, 11 + n),
            "location_id": np.arange(11, 11 + n), "location_address": 4096 + 16 * np.arange(n),
            "location_version": np.full(n, version), "location_line_count": np.full(n, 1 if names else 0),
            "line_function": np.arange(2, 2 + len(names)), "line_file": np.ones(len(names)),
            "line_number": np.arange(len(names)) + 7, "line_start_line": np.ones(len(names)),
        },
        published_unix_nano=START_MS * 10**6, seen_unix_nano=START_MS * 10**6, strings=["", "app.c", *names],
        mappings=[Mapping(), Mapping(kind=Mapping.FILE, build_id=build_id, file="/bin/app")],
    )  # fmt: skip


def activity_batch(sequence: int, rows: int = 3, host: str = "host-1") -> bytes:
    """Intervals of 1 ms of one trace, and its span."""
    fields = builders.contexts([context(sequence)])
    trace, span = fields.values()
    start = (START_MS + sequence * 5000) * 10**6
    return builders.activity_batch(
        batch_id(sequence, host), start,
        {
            "interval_start_offset_ns": np.arange(rows) * 2_000_000 - 500,
            "interval_duration_ns": np.full(rows, 1_000_000), "interval_thread_cpu_ns": np.full(rows, 900_000),
            "interval_tid": np.full(rows, 7), "interval_service": np.ones(rows), "context_operation": np.full(1, 2),
        },
        strings=["", "checkout", "GET /"],
        spans=[Span(trace_id=trace, span_id=span, name="GET /", service="checkout", start_unix_nano=start,
                    end_unix_nano=start + 10**9, operation="GET /")],
        context_entry_span_ids=span,
        **fields,
    )  # fmt: skip


def tables(topic: str, data: bytes) -> Tables:
    """A message as tables."""
    return decode(data, MessageId("C", topic, 0, 0))


def make_range(
    topic: str, messages: list[Tables], first: int = 0, retried: bool = False, nonce: str = "0" * 12
) -> MessageRange[Tables]:
    offsets = InFlight(first, first + max(len(messages), 1) - 1, nonce)
    return MessageRange("C", topic, 0, offsets, messages, retried)
