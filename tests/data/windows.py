"""Raw and activity batches generated from a seed: the input of tests that need exact totals."""

from dataclasses import dataclass

import numpy as np

from icestream.labels.request_labels import label_set
from icestream.v1.activity_pb2 import Span
from icestream.v1.common_pb2 import Mapping
from tests.data.messages import PERIOD_NS, WINDOW_NS, activity_batch, batch_id, contexts, raw_batch, raw_series

FUNCTIONS = 60
SERVICES = ("checkout", "search", "cart")


@dataclass(frozen=True)
class Window:
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
    start_unix_nano: int,
    sequence: int,
    host: int = 0,
    samples: int = 200,
    started_unix_nano: int = 1,
    seed: int = 0,
    stack_seed: int | None = None,
) -> Window:
    """Window `sequence` (from 1) of a host: stacks of named functions, a traced thread (tid 7) among others.

    The samples of tid 7 carry no context themselves: only the join with the activity gives them their trace. Windows
    with the same `stack_seed` have the same stacks; without it, each window has its own.
    """
    random = np.random.default_rng([seed, host, sequence])
    stacks = random if stack_seed is None else np.random.default_rng(stack_seed)
    start = start_unix_nano + (sequence - 1) * WINDOW_NS
    host_id = f"host-{host}"
    batch = batch_id(sequence, host_id, started_unix_nano)

    depth = stacks.integers(1, 30, size=40)
    times = np.sort(random.integers(0, WINDOW_NS // 1000, size=samples))
    tid = random.choice([7, 8, 9], size=samples)
    series = random.integers(0, len(SERVICES), size=samples)
    series[tid == 7] = 0

    raw = raw_batch(
        batch, start,
        {
            "location_mapping": np.ones(FUNCTIONS),
            "location_function": np.arange(1, FUNCTIONS + 1),
            "location_file": np.full(FUNCTIONS, FUNCTIONS + 1),
            "location_line": np.arange(FUNCTIONS),
            "stack_depth": depth,
            "stack_frames": stacks.integers(0, FUNCTIONS, size=depth.sum()),
            "sample_offset_us": times,
            "sample_series": series,
            "sample_tid": tid,
            "sample_stack": random.integers(0, len(depth), size=samples),
        },
        activity_sequence=sequence,
        strings=["", *(f"function_{i}" for i in range(FUNCTIONS)), "app.js"],
        mappings=[Mapping(), Mapping(kind=Mapping.NAMED, file="[jit]")],
        series=[raw_series({"host": host_id, "service": service}) for service in SERVICES],
    )  # fmt: skip

    # One interval of tid 7 over the middle half of the window.
    left, right = WINDOW_NS // 4, 3 * WINDOW_NS // 4
    trace, span = trace_id(host, sequence), sequence.to_bytes(8, "big")
    inside = (tid == 7) & (times * 1000 >= left) & (times * 1000 < right)
    traced = int(inside.sum()) * PERIOD_NS
    activity = activity_batch(
        batch, start,
        {
            "interval_start_offset_ns": [left], "interval_duration_ns": [right - left],
            "interval_thread_cpu_ns": [traced], "interval_tid": [7], "interval_service": [1],
            "interval_labels": [2],
        },
        complete_unix_nano=start + WINDOW_NS,
        strings=["", "checkout", label_set([("host", host_id)])],
        spans=[
            Span(trace_id=trace, span_id=span, name="GET /checkout", service="checkout",
                 labels=label_set([("host", host_id)]), start_unix_nano=start + left,
                 end_unix_nano=start + right)
        ],
        **contexts([trace + span]),
    )  # fmt: skip
    return Window(
        raw=raw,
        activity=activity,
        value=samples * PERIOD_NS,
        by_service={name: int((series == i).sum()) * PERIOD_NS for i, name in enumerate(SERVICES)},
        by_trace={trace.hex(): traced},
    )
