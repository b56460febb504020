"""Messages that the gateway makes of profiles."""

import dataclasses

import numpy as np
import pytest

import gateway.encode as encode_module
from gateway.encode import encode
from gateway.errors import Refused
from gateway.profile_types import CPU
from gateway.readers.folded import read_folded
from gateway.readers.pprof import Source, read_pprof
from icestream.messages import identify
from icestream.messages.plausible import ANY_TIME
from icestream.messages.raw import decode_raw
from icestream.topics import MAX_MESSAGE_BYTES
from tests.gateway.profiles import maker, simple


def _encoded(functions: int, stacks: int, name: str = "f") -> list[bytes]:
    """The messages of a profile with some frames in one function, each stack in one sample."""
    made = maker([("cpu", "nanoseconds")], ("cpu", "nanoseconds"))
    for row in range(1, functions + 1):
        function = made.string(f"{name}{row}")
        made.profile.function.add(id=row, name=function, start_line=row % 3)
        made.profile.location.add(id=row).line.add(function_id=row, line=row)
    for row in range(stacks):
        made.profile.sample.add(location_id=[1 + row % functions] * (1 + row // functions), value=[1 + row])
    profile = read_pprof(made.done().SerializeToString(), Source((("service", "shop"),)), 10)
    return encode(profile, ANY_TIME).messages


def test_every_stack_has_the_id_that_streams_would_compute() -> None:
    (message,) = _encoded(functions=7, stacks=20)
    raw = decode_raw(message)
    assert len(raw.stack_id) == 20
    computed = identify.stack_ids(dataclasses.replace(raw, stack_id=np.zeros_like(raw.stack_id)))
    assert raw.stack_id.tolist() == computed.tolist()


def test_streams_compute_the_ids_of_a_profile_with_very_many_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode_module, "MAX_IDENTIFIED", 10)
    text = "\n".join(f"main;work{number};wait 1" for number in range(7))
    profile = read_folded(text.encode(), Source((("service", "shop"),)), CPU, 1)
    (message,) = encode(profile, ANY_TIME).messages
    raw = decode_raw(message)
    assert not raw.stack_id.any()
    assert identify.stack_ids(raw).all()


def test_messages_have_room_for_the_ids() -> None:
    messages = _encoded(functions=40_000, stacks=40_000, name="")
    assert len(messages) > 1
    assert max(map(len, messages)) <= MAX_MESSAGE_BYTES
    assert all(decode_raw(message).stack_id.all() for message in messages)


def test_messages_of_a_profile_that_become_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 MB of a profile with 32 types became 257 MB of messages."""
    made = simple({("main", "work"): [1] * 4}, [(f"type{number}", "count") for number in range(4)])
    profile = read_pprof(made.SerializeToString(), Source((("service", "shop"),)), 10)
    size = sum(map(len, encode(profile, ANY_TIME).messages))
    monkeypatch.setattr(encode_module, "MAX_BYTES", size - 1)
    with pytest.raises(Refused, match="bytes of messages"):
        encode(profile, ANY_TIME)
