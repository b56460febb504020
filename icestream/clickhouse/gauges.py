"""Gauges: profile types of what there is at a moment. Their profiles are averaged over time, all others summed up."""

GAUGES = ("inuse_objects", "inuse_space", "goroutine", "goroutines", "goroutineleak", "threadcreate")
"""Their sample types. One that is added has no rollups of days that were built before."""
IS_GAUGE = f"match(profile_type, '^[^:]*:({'|'.join(GAUGES)}):')"
"""In SQL, for any table with profile types."""


def is_gauge(profile_type: str) -> bool:
    return profile_type.split(":")[1] in GAUGES
