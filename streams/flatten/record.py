"""Records of icestream.flat: docs/topics.md describes the members."""

import json

from icestream.stack_names import StackNames
from icestream.topics import MAX_MESSAGE_BYTES
from streams.flatten.sums import FlatKey, FlatSum

NO_STACK, UNRESOLVED, CUT = "[no stack]", "[unresolved stack]", "[cut]"

_FEWEST = 8
"""Frames that are never cut."""


def record(key: FlatKey, of_key: FlatSum, interval_ms: int, names: StackNames) -> bytes:
    """One record as JSON. A stack that makes it too large for a message loses frames in its middle."""
    labels = dict(key.labels)
    frames = functions(key.stack_id, names)
    fields: dict[str, object] = {
        "start_unix_milli": key.start_unix_milli,
        "interval_ms": interval_ms,
        "profile_type": key.profile_type,
        "unit": key.profile_type.split(":")[2],
        "host_id": key.host_id,
        "service": labels.get("service", ""),
        "labels": labels,
        "stack_id": f"{key.stack_id:016x}",
        "functions": frames,
        "value": of_key.value,
        "samples": of_key.samples,
    }
    while len(data := _encoded(fields)) > MAX_MESSAGE_BYTES and len(frames) >= _FEWEST:
        end = len(frames) // 4
        fields["functions"] = frames = [*frames[:end], CUT, *frames[-end:]]
    return data


def _encoded(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")


def functions(stack_id: int, names: StackNames) -> list[str]:
    """Root first; never empty."""
    if not stack_id:
        return [NO_STACK]
    return names.frames(stack_id)[::-1] or [UNRESOLVED]
