"""Limits of Speedscope files: events say in few bytes what takes much memory."""

import json
from typing import Any

import pytest

from gateway.errors import Refused
from gateway.profile_types import COUNT
from gateway.readers import speedscope
from gateway.readers.pprof import Source
from gateway.readers.speedscope import read_speedscope
from gateway.sent_profile import SentProfile


def nested(depth: int) -> dict[str, Any]:
    """An evented profile with a stack of each depth up to this one."""
    events = [{"type": "O", "frame": number % 2, "at": number} for number in range(depth)]
    return {"type": "evented", "unit": "none", "startValue": 0, "endValue": depth, "events": events}


def read(*profiles: dict[str, Any]) -> SentProfile:
    file = {"shared": {"frames": [{"name": "even"}, {"name": "odd"}]}, "profiles": profiles}
    return read_speedscope(json.dumps(file).encode(), Source((("service", "shop"),)), COUNT)


def test_the_stacks_of_all_events_of_a_file_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speedscope, "_MAX_FRAMES", 100)
    assert read(nested(10)).window.stacks.depth.sum() == 55
    with pytest.raises(Refused):
        read(nested(10), nested(10))


def test_deep_stacks_of_events_are_cut_at_their_roots_while_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speedscope, "MAX_DEPTH", 3, raising=False)
    monkeypatch.setattr(speedscope, "_MAX_FRAMES", 1 + 2 + 3 + 3 + 3)
    found = read(nested(5))
    # The stacks of 3 and of 5 frames are the same then.
    assert found.window.stacks.depth.tolist() == [1, 2, 3, 3]
    assert found.dropped == {"frames": 1 + 2}
    assert found.window.stacks.frames.tolist()[-3:] == [1, 0, 1]  # leaf first
    with pytest.raises(Refused):
        read(nested(6))
