"""Reads Speedscope's JSON (github.com/jlfwong/speedscope/wiki/Importing-from-custom-sources)."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from gateway.errors import bad_profile
from gateway.profile_types import ValueType
from gateway.readers.folded import weighted_profile
from gateway.readers.location_table import sent_line
from gateway.readers.pprof import Source
from gateway.readers.valid_texts import load_json
from gateway.sent_profile import SentProfile
from icestream.messages.raw import MAX_DEPTH

_NANOSECONDS = {"nanoseconds": 1, "microseconds": 10**3, "milliseconds": 10**6, "seconds": 10**9}
_MAX_FRAMES = 1_000_000
"""The most frames of the different stacks in all evented profiles: few bytes of events may need much memory."""


def read_speedscope(data: bytes, source: Source, kind: ValueType) -> SentProfile:
    """Reads the profiles of a Speedscope file. `kind`: the type of values for which the file names no unit. Raises
    Refused."""
    dropped = Counter(source.dropped)
    try:
        file: Any = load_json(data)
        lines = [
            sent_line(str(frame["name"]), str(frame.get("file") or ""), int(frame.get("line") or 0), 0, dropped)
            for frame in file["shared"]["frames"]
        ]
        rows = {row: row for row in range(len(lines))}  # knows no negative ones
        units = {str(profile.get("unit", "none")) for profile in file["profiles"]}
        if len(units) != 1:
            raise bad_profile("expected Speedscope profiles with one unit")
        unit = units.pop()
        scale = _NANOSECONDS.get(unit, 1)
        stacks = [
            ([rows[index] for index in stack], round(weight * scale))
            for stack, weight in _stacks(file["profiles"], dropped)
        ]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise bad_profile(f"no Speedscope file: {error!r}") from None
    if unit != "none":
        source = dataclasses.replace(source, name="")
    if unit == "bytes":
        kind = ValueType("alloc_space", "bytes") if kind.unit != "bytes" else kind
    elif unit in _NANOSECONDS:
        kind = ValueType("cpu", "nanoseconds")
    return weighted_profile(lines, stacks, data, source, kind, 1, dropped)


def _stacks(profiles: Sequence[Any], dropped: Counter[str]) -> Iterator[tuple[Sequence[int], float]]:
    """Returns stacks of frames, root first, and their weights. Raises Refused."""
    room = _MAX_FRAMES
    for profile in profiles:
        if profile["type"] == "sampled":
            yield from zip(profile["samples"], profile["weights"], strict=True)
        elif profile["type"] == "evented":
            found = _evented(profile, room, dropped)
            room -= sum(len(stack) for stack, _ in found)
            yield from found
        else:
            raise ValueError("expected profiles of the types sampled and evented")


def _evented(profile: Any, room: int, dropped: Counter[str]) -> list[tuple[Sequence[int], float]]:
    """Returns each different stack of open frames, and how long it was open. A deep stack keeps the frames nearest to
    its leaf. Raises Refused where all have more than `room` frames."""
    callers: list[tuple[int, int]] = [(0, 0)]  # of each stack the one below its top, and its top; stack 0 is empty
    depths = [0]
    known: dict[tuple[int, int], int] = {}
    opened = [0]
    held: defaultdict[int, float] = defaultdict(float)
    last = profile.get("startValue", 0)
    for event in [*profile["events"], {"type": "end", "at": max(profile.get("endValue", 0), last)}]:
        if event["at"] < last and event["type"] != "end":
            raise ValueError("expected events in the order of their times")
        held[opened[-1]] += max(event["at"] - last, 0)
        last = event["at"]
        if event["type"] == "O":
            key = opened[-1], event["frame"]
            if key not in known:
                known[key] = len(callers)
                callers.append(key)
                depths.append(depths[opened[-1]] + 1)
            opened.append(known[key])
        elif event["type"] == "C" and opened[-1] and callers[opened[-1]][1] == event["frame"]:
            opened.pop()
        elif event["type"] != "end":
            raise ValueError("expected events O and C, and that C closes the frame that was opened last")
    seen = [stack for stack, weight in held.items() if stack and weight]
    if sum(min(depths[stack], MAX_DEPTH) for stack in seen) > room:
        raise bad_profile(f"expected at most {_MAX_FRAMES} frames in the different stacks of events")
    found: list[tuple[Sequence[int], float]] = []
    for stack in seen:
        frames: list[int] = []
        at = stack
        while at and len(frames) < MAX_DEPTH:
            at, frame = callers[at]
            frames.append(frame)
        if at:
            dropped["frames"] += depths[at]
        found.append((frames[::-1], held[stack]))
    return found
