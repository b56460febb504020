"""Profile types of profiles that others made: name:sample type:sample unit:period type:period unit."""

from collections.abc import Sequence
from typing import NamedTuple

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


def profile_type(name: str, sample: ValueType, period: ValueType) -> str:
    """Returns the profile type. `name`: as the sender calls the profile, "" if it does not."""
    period = period if period.type else sample
    parts = (name or _NAMES.get(sample.type, sample.type), *sample, *period)
    return ":".join(part.replace(":", "_") or "unknown" for part in parts)


def counted_by(samples: Sequence[ValueType]) -> int | None:
    """Returns the index of the sample type that counts how often the samples of the other types were seen, or None."""
    return samples.index(COUNT) if len(samples) > 1 and COUNT in samples else None
