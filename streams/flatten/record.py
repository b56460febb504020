"""Records of icestream.flat: docs/topics.md describes the members."""

import json

from icestream.stack_names import StackNames
from streams.flatten.sums import FlatKey, FlatSum

NO_STACK, UNRESOLVED = "[no stack]", "[unresolved stack]"


def record(key: FlatKey, of_key: FlatSum, interval_ms: int, names: StackNames) -> bytes:
    """One record as JSON."""
    labels = dict(key.labels)
    fields = {
        "start_unix_milli": key.start_unix_milli,
        "interval_ms": interval_ms,
        "profile_type": key.profile_type,
        "unit": key.profile_type.split(":")[2],
        "host_id": key.host_id,
        "service": labels.get("service", ""),
        "labels": labels,
        "stack_id": f"{key.stack_id:016x}",
        "functions": functions(key.stack_id, names),
        "value": of_key.value,
        "samples": of_key.samples,
    }
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")


def functions(stack_id: int, names: StackNames) -> list[str]:
    """Root first; never empty."""
    if not stack_id:
        return [NO_STACK]
    return names.frames(stack_id)[::-1] or [UNRESOLVED]
