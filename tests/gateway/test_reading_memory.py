"""The guess of how many elements a body has, from which its memory is estimated."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.message import Message
from hypothesis import given

from gateway.errors import Refused
from gateway.readers.otlp_json import parse_profiles
from gateway.reading_memory import MAX_ELEMENTS, Reading, ReadingMemory, json_elements, protobuf_elements
from icestream.pprof.profile_pb2 import Profile
from tests.gateway.profiles import profiles

CAPTURED = Path(__file__).parent / "captured/otel_ebpf_profiler.json"


def elements(message: Message) -> Iterator[int]:
    """The bytes of each text and each message inside a message."""
    for field, value in message.ListFields():
        for one in value if field.is_repeated else [value]:
            if isinstance(one, Message):
                yield one.ByteSize()
                yield from elements(one)
            elif isinstance(one, str | bytes):
                yield len(one)


@given(profile=profiles())
def test_no_short_element_is_left_out(profile: Profile) -> None:
    short = sum(size < 24 for size in elements(profile))
    assert protobuf_elements(profile.SerializeToString()) >= short


def test_of_a_profile_of_the_ebpf_profiler_the_guess_is_near() -> None:
    body = CAPTURED.read_bytes()
    parsed = parse_profiles(body)
    count = sum(1 for _ in elements(parsed))
    assert 0.5 * count < protobuf_elements(parsed.SerializeToString()) < 1.5 * count
    assert count < json_elements(body) < 10 * count


def test_a_tag_at_the_end_of_a_piece_is_counted() -> None:
    for size in (999_998, 999_999, 1_000_000):
        assert protobuf_elements(b"\0" * size + b"\x0a\0" + b"\0" * 10) == 1
    assert protobuf_elements(b"") == protobuf_elements(b"\x0a") == 0


def test_what_has_ended_takes_no_more() -> None:
    """A call that times out while its thread counts elements: its memory stayed taken for good."""
    memory = ReadingMemory(1000)
    with memory.request() as reading:
        reading.hold(10)
        assert memory.used == 10
    with pytest.raises(Refused):
        reading.hold(10)
    assert memory.used == 0


def test_of_several_parts_of_a_request_the_elements_add_up() -> None:
    reading = Reading(ReadingMemory(2**40))
    for _ in range(4):
        reading.before_reading(b"\x0a\0" * (MAX_ELEMENTS // 4))
    with pytest.raises(Refused, match="elements"):
        reading.before_reading(b"\x0a\0")
