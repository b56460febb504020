"""Records of icestream.flat: docs/topics.md describes the members."""

import json
from collections.abc import Callable

from icestream.messages.stack_names import Frame, StackNames
from icestream.topics import MAX_MESSAGE_BYTES
from streams.flatten.sums import FlatKey, FlatSum

NO_STACK, UNRESOLVED, CUT = "[no stack]", "[unresolved stack]", "[cut]"

_FEWEST = 8
"""Frames that are never cut."""
_LARGEST = 2**63 - 1
"""Consumers read whole numbers of 64 bits. No honest sum is larger."""

Fields = dict[str, object]
Encode = Callable[[Fields], bytes]
"""Turns the members of a record into a message."""


def as_json(fields: Fields) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")


def record(key: FlatKey, flat_sum: FlatSum, interval_ms: int, names: StackNames, encode: Encode = as_json) -> bytes:
    """Returns one record as a message. A stack that makes it too large loses frames in its middle."""
    labels = dict(key.labels)
    frames = stack(key.stack_id, names)
    fields: Fields = {
        "start_unix_milli": key.start_unix_milli,
        "interval_ms": interval_ms,
        "profile_type": key.profile_type,
        "unit": key.profile_type.split(":")[2],
        "host_id": key.host_id,
        "service": labels.get("service", ""),
        "labels": labels,
        "stack_id": f"{key.stack_id:016x}",
        **_columns(frames),
        "value": _bounded(flat_sum.value),
        "samples": _bounded(flat_sum.samples),
        "operation": key.operation,
    }
    while len(data := encode(fields)) > MAX_MESSAGE_BYTES and len(frames) >= _FEWEST:
        end = len(frames) // 4
        frames = [*frames[:end], _no_code(CUT), *frames[-end:]]
        fields |= _columns(frames)
    return data


def stack(stack_id: int, names: StackNames) -> list[Frame]:
    """Returns the frames of a stack, root first; never empty."""
    if not stack_id:
        return [_no_code(NO_STACK)]
    return names.stack(stack_id)[::-1] or [_no_code(UNRESOLVED)]


def _no_code(name: str) -> Frame:
    return Frame(name, "", "")


def _columns(frames: list[Frame]) -> Fields:
    return {
        "functions": [frame.function for frame in frames],
        "modules": [frame.module for frame in frames],
        "files": [frame.file for frame in frames],
    }


def _bounded(value: int) -> int:
    return max(-_LARGEST, min(value, _LARGEST))
