"""Activity that applications handed to the collector, as columns."""

from dataclasses import dataclass, field

import numpy as np

from icestream.v1.activity_pb2 import Span


@dataclass(frozen=True)
class ActivityIntervals:
    """n intervals of one thread in one context each, and the spans that ended."""

    start_monotonic_ns: np.ndarray  # uint64 (n,)
    duration_ns: np.ndarray  # uint64 (n,)
    thread_cpu_ns: np.ndarray  # uint64 (n,), of the thread's CPU clock
    pid: np.ndarray  # uint32 (n,), in the host's PID namespace
    tid: np.ndarray  # uint32 (n,)
    context: np.ndarray  # uint32 (n,), row of the contexts
    service: np.ndarray  # uint32 (n,), index into strings
    labels: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint32))  # (n,), index into strings; or none
    trace_ids: bytes = b""  # 16 * contexts
    span_ids: bytes = b""  # 8 * contexts
    entry_span_ids: bytes = b""  # 8 * contexts, zeros: not known; or none
    operation: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint32))  # of contexts, index into strings
    strings: list[str] = field(default_factory=lambda: [""])
    spans: list[Span] = field(default_factory=list)  # times are CLOCK_MONOTONIC here, still to be converted
    span_pid: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint32))  # of spans
    dropped: int = 0  # intervals that applications could not hand over
