"""A fleet of simulated hosts: windows that look like those of real ones, for measurements.

A host has 8 CPUs, and two are busy: 190 samples in 5 s at 19 Hz. It runs 4 of 20 services in two pods each. It
answers 20 requests a second, each in two intervals; half of the samples are in an interval. A service has 500 stacks of
35 frames, few of them hot, and gets a new build now and then.
"""

from dataclasses import dataclass

import numpy as np

from icestream.v1.activity_pb2 import Span
from icestream.v1.common_pb2 import Mapping
from tests.data.messages import WINDOW_NS, activity_batch, batch_id, raw_batch, raw_series

SAMPLES = 190
"""The samples of a window."""
SERVICES, HOST_SERVICES, PODS, THREADS = 20, 4, 2, 25
STACKS, DEPTH, LOCATIONS = 500, 35, 1200
"""What a service has."""
REQUESTS, INTERVALS = 100, 200
"""The requests and intervals of a window."""
PERIOD_NS = 52_631_579
_LONGEST_NS = 80 * 10**6
"""The duration of the longest interval."""


@dataclass(frozen=True)
class Messages:
    """What a collector publishes of a window."""

    activity: bytes
    raw: bytes


class Fleet:
    """Makes windows, from the seed."""

    def __init__(self, seed: int = 1) -> None:
        self._random = np.random.default_rng(seed)
        paths = self._random.integers(0, 12, size=(SERVICES, STACKS, DEPTH))
        # A leaf first; the half of a stack that is near its root is one of 40.
        paths[:, :, DEPTH // 2 :] = paths[:, self._random.integers(0, 40, STACKS), DEPTH // 2 :]
        self._frames = (paths + np.arange(DEPTH) * (LOCATIONS // DEPTH)) % LOCATIONS
        self._addresses = self._random.integers(0x1000, 2**30, size=(SERVICES, LOCATIONS))

    def window(self, host: int, sequence: int, start_unix_nano: int, build: int = 0) -> Messages:
        """Window `sequence` of a host; each `build` of the services has its own locations, stacks and series."""
        name, random = f"host-{host}", self._random
        services = (host + np.arange(HOST_SERVICES) * 7) % SERVICES
        intervals = self._intervals()
        interval = random.integers(0, INTERVALS, SAMPLES)
        traced = random.random(SAMPLES) < 0.5
        pod = np.where(traced, intervals.pod[interval], _skewed(random, 1.5, SAMPLES, HOST_SERVICES * PODS))
        thread = np.where(traced, intervals.thread[interval], THREADS + random.integers(0, THREADS, SAMPLES))
        inside_ns = intervals.start_ns[interval] + random.random(SAMPLES) * intervals.duration_ns[interval]
        offset_ns = np.where(traced, inside_ns, random.integers(0, WINDOW_NS, SAMPLES))
        stack = _skewed(random, 1.3, SAMPLES, STACKS)
        pools, sample_stack = np.unique(pod // PODS * STACKS + stack, return_inverse=True)
        frames = pools[:, None] // STACKS * LOCATIONS + self._frames[services[pools // STACKS], pools % STACKS]
        rows, stack_frames = np.unique(frames, return_inverse=True)
        raw = raw_batch(
            batch_id(sequence, name), start_unix_nano,
            {
                "location_mapping": 1 + rows // LOCATIONS,
                "location_address": self._addresses[services[rows // LOCATIONS], rows % LOCATIONS],
                "stack_depth": np.full(len(pools), DEPTH), "stack_frames": stack_frames.ravel(),
                "sample_offset_us": offset_ns.astype(np.int64) // 1000, "sample_series": pod,
                "sample_pid": 1000 + pod, "sample_tid": 10_000 + 100 * pod + thread, "sample_stack": sample_stack,
            },
            period=PERIOD_NS, activity_sequence=sequence,
            mappings=[Mapping(), *(_mapping(int(service), build) for service in services)],
            series=[raw_series(_labels(name, int(service), p, build)) for service in services for p in range(PODS)],
        )  # fmt: skip
        return Messages(self._activity(name, sequence, start_unix_nano, services, intervals), raw)

    def _intervals(self) -> "_Intervals":
        """Threads take turns: an interval begins when the one before it on its thread has ended."""
        random = self._random
        lane = np.arange(INTERVALS) % (HOST_SERVICES * PODS * THREADS)
        turn_ns = WINDOW_NS // (1 + INTERVALS // (HOST_SERVICES * PODS * THREADS))
        start_ns = np.arange(INTERVALS) // (HOST_SERVICES * PODS * THREADS) * turn_ns
        start_ns = start_ns + random.integers(0, turn_ns - _LONGEST_NS, INTERVALS)
        return _Intervals(lane // THREADS, lane % THREADS, start_ns, random.integers(10**6, _LONGEST_NS, INTERVALS))

    def _activity(self, name: str, sequence: int, start: int, services: np.ndarray, intervals: "_Intervals") -> bytes:
        traces, spans = self._random.bytes(16 * REQUESTS), self._random.bytes(8 * REQUESTS)
        return activity_batch(
            batch_id(sequence, name), start,
            {
                "interval_start_offset_ns": intervals.start_ns, "interval_duration_ns": intervals.duration_ns,
                "interval_thread_cpu_ns": intervals.duration_ns // 2, "interval_pid": 1000 + intervals.pod,
                "interval_tid": 10_000 + 100 * intervals.pod + intervals.thread,
                "interval_context": np.arange(INTERVALS) // 2, "interval_service": 1 + intervals.pod // PODS,
            },
            complete_unix_nano=start + WINDOW_NS, strings=["", *(f"service-{service}" for service in services)],
            context_trace_ids=traces, context_span_ids=spans,
            spans=[
                Span(trace_id=traces[16 * i : 16 * i + 16], span_id=spans[8 * i : 8 * i + 8],
                     name=f"GET /path-{i % 20}", service=f"service-{services[i % HOST_SERVICES]}",
                     start_unix_nano=start + i * 10**7, end_unix_nano=start + i * 10**7 + 10**8)
                for i in range(REQUESTS)
            ],
        )  # fmt: skip


@dataclass(frozen=True)
class _Intervals:
    """Columns of INTERVALS rows; times are nanoseconds from the start of the window."""

    pod: np.ndarray
    thread: np.ndarray
    start_ns: np.ndarray
    duration_ns: np.ndarray


def _skewed(random: np.random.Generator, exponent: float, size: int, limit: int) -> np.ndarray:
    """Numbers below `limit`; the small ones are frequent."""
    return np.minimum(random.zipf(exponent, size), limit) - 1


def _mapping(service: int, build: int) -> Mapping:
    return Mapping(kind=Mapping.FILE, build_id=f"gnu:{service:08x}{build:08x}", file=f"/usr/bin/service-{service}")


def _labels(host: str, service: int, pod: int, build: int) -> dict[str, str]:
    name = f"service-{service}"
    return {"host": host, "service": name, "pod": f"{name}-{build}-{pod}", "version": f"1.{build}", "zone": "a"}
