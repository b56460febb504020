"""Raw and activity batches made up from a seed: the input of tests that need exact totals."""

from dataclasses import dataclass

import numpy as np

from icestream import packed
from icestream.topics import DEFAULT_PROFILE_TYPE
from icestream.v1.activity_pb2 import ActivityBatch, Span
from icestream.v1.common_pb2 import BatchId, Label, Mapping, Series
from icestream.v1.raw_pb2 import RawBatch

PERIOD_NS = 10_000_000
WINDOW_NS = 5 * 10**9
FUNCTIONS = 60
SERVICES = ("checkout", "search", "cart")


@dataclass(frozen=True)
class Made:
    """One collector's window: its messages, and what must come out of them."""

    raw: bytes
    activity: bytes
    value: int
    by_service: dict[str, int]
    by_trace: dict[str, int]


def trace_id(host: int, sequence: int) -> bytes:
    """The trace that one thread of this window works for."""
    return b"\x00" * 4 + host.to_bytes(4, "big") + sequence.to_bytes(8, "big")


def window(
    start_unix_nano: int, sequence: int, host: int = 0, samples: int = 200, started_unix_nano: int = 1, seed: int = 0
) -> Made:
    """Window `sequence` (from 1) of a host: stacks of named functions, a traced thread (tid 7) among others.

    The samples of tid 7 carry no context themselves: only the join with the activity gives them their trace.
    """
    random = np.random.default_rng([seed, host, sequence])
    start = start_unix_nano + (sequence - 1) * WINDOW_NS
    host_id = f"host-{host}"
    batch = BatchId(collector=host_id, started_unix_nano=started_unix_nano, sequence=sequence, part=0, parts=1)

    depth = random.integers(1, 30, size=40)
    times = np.sort(random.integers(0, WINDOW_NS // 1000, size=samples))
    tid = random.choice([7, 8, 9], size=samples)
    series = random.integers(0, len(SERVICES), size=samples)
    series[tid == 7] = 0

    raw = RawBatch(
        id=batch, host_id=host_id, profile_type=DEFAULT_PROFILE_TYPE, start_unix_nano=start,
        end_unix_nano=start + WINDOW_NS, period=PERIOD_NS, published_unix_nano=start + WINDOW_NS,
        activity_complete_unix_nano=start + WINDOW_NS, activity_sequence=sequence,
        strings=["", *(f"function_{i}" for i in range(FUNCTIONS)), "app.js"],
        mappings=[Mapping(), Mapping(kind=Mapping.NAMED, file="[jit]")],
        series=[Series(labels=[Label(name="host", value=host_id), Label(name="service", value=s)]) for s in SERVICES],
    )  # fmt: skip
    raw_bytes = packed.serialize(
        raw,
        {
            "location_mapping": np.ones(FUNCTIONS),
            "location_address": np.zeros(FUNCTIONS),
            "location_function": np.arange(1, FUNCTIONS + 1),
            "location_file": np.full(FUNCTIONS, FUNCTIONS + 1),
            "location_line": np.arange(FUNCTIONS),
            "stack_depth": depth,
            "stack_frames": random.integers(0, FUNCTIONS, size=depth.sum()),
            "sample_offset_us": times,
            "sample_series": series,
            "sample_pid": np.full(samples, 100),
            "sample_tid": tid,
            "sample_stack": random.integers(0, len(depth), size=samples),
            "sample_context": np.zeros(samples),
        },
    )

    # One interval of tid 7 over the middle half of the window.
    left, right = WINDOW_NS // 4, 3 * WINDOW_NS // 4
    trace, span = trace_id(host, sequence), sequence.to_bytes(8, "big")
    activity = ActivityBatch(
        id=batch, host_id=host_id, complete_unix_nano=start + WINDOW_NS, published_unix_nano=start + WINDOW_NS,
        start_unix_nano=start, strings=["", "checkout"], context_trace_ids=trace, context_span_ids=span,
        spans=[
            Span(trace_id=trace, span_id=span, name="GET /checkout", service="checkout",
                 start_unix_nano=start + left, end_unix_nano=start + right)
        ],
    )  # fmt: skip
    inside = (tid == 7) & (times * 1000 >= left) & (times * 1000 < right)
    traced = int(inside.sum()) * PERIOD_NS
    activity_bytes = packed.serialize(
        activity,
        {
            "interval_start_offset_ns": np.array([left]),
            "interval_duration_ns": np.array([right - left]),
            "interval_thread_cpu_ns": np.array([traced]),
            "interval_pid": np.array([100]),
            "interval_tid": np.array([7]),
            "interval_context": np.array([0]),
            "interval_service": np.array([1]),
        },
    )
    return Made(
        raw=raw_bytes,
        activity=activity_bytes,
        value=samples * PERIOD_NS,
        by_service={s: int((series == i).sum()) * PERIOD_NS for i, s in enumerate(SERVICES)},
        by_trace={trace.hex(): traced},
    )
