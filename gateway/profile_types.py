"""Profile types of profiles that others made: name:sample type:sample unit:period type:period unit."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gateway.errors import bad_profile
from icestream.messages.checks import MAX_OBSERVATIONS

_NAMES = {
    "cpu": "process_cpu",
    "samples": "process_cpu",
    "alloc_objects": "memory",
    "alloc_space": "memory",
    "inuse_objects": "memory",
    "inuse_space": "memory",
    "goroutine": "goroutines",
    "contentions": "contention",
    "delay": "contention",
}
"""The names that Pyroscope and Parca give to profiles with these sample types. Go's mutex and block profiles have the
same sample types, so only their sender can tell which it is."""


class ValueType(NamedTuple):
    type: str
    unit: str


COUNT = ValueType("samples", "count")
CPU = ValueType("cpu", "nanoseconds")
_ALLOCATED = ValueType("alloc_space", "bytes")

_ENGINES = {
    ("perf_events", "nanoseconds"): CPU,
    ("itimer", "nanoseconds"): CPU,
    ("ctimer", "nanoseconds"): CPU,
    ("object_sampler", "bytes"): _ALLOCATED,
    ("alloc_tracer", "bytes"): _ALLOCATED,
}
"""async-profiler, which is in Pyroscope's Java agent, names sample types by the engine that measured them."""


def value_type(kind: str, unit: str) -> ValueType:
    """Returns a sample type under its usual name, whatever its sender calls it."""
    unit = "nanoseconds" if unit == "ns" else unit
    return _ENGINES.get((kind, unit), ValueType(kind, unit))


def value_types(given: Sequence[tuple[str, str]]) -> list[ValueType]:
    """Returns the types of one profile as `value_type` does. Types that would become equal stay as they were sent."""
    found = [value_type(*one) for one in given]
    return [kind if found.count(kind) == 1 else ValueType(*sent) for kind, sent in zip(found, given, strict=True)]


def profile_type(name: str, sample: ValueType, period: ValueType) -> str:
    """Returns the profile type. `name`: as the sender calls the profile, "" if it does not.

    CPU has the period type CPU even if its timer went by wall time, as in Pyroscope's SDK for Node.
    """
    period = period if period.type and sample != CPU else sample
    parts = (name or _NAMES.get(sample.type, sample.type), *sample, *period)
    return ":".join(part.replace(":", "_") or "unknown" for part in parts)


def counted_by(samples: Sequence[ValueType]) -> int | None:
    """Returns the index of the sample type that counts how often the samples of the other types were seen, or None."""
    return samples.index(COUNT) if len(samples) > 1 and COUNT in samples else None


def cpu_time(counts: np.ndarray, period: int) -> np.ndarray:
    """Returns the CPU time of samples that are counted, as by perf and OpenTelemetry: each stands for the period.
    Raises Refused."""
    most = 2**62 // period
    if len(counts) and not -most <= counts.min() <= counts.max() <= most:
        raise bad_profile("values: expected numbers that can be multiplied with the period")
    return counts * period


def observations(cpu: np.ndarray, period: int) -> np.ndarray:
    """Returns how often samples were seen that have CPU time and nothing else, as Pyroscope's SDKs for Python, Rust
    and Java send them: confidence intervals depend on it."""
    return np.clip(np.rint(cpu / period), 1, MAX_OBSERVATIONS).astype(np.int64)
