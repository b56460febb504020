"""Messages that are decoded together are what each of them is alone."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icestream.columns import message_columns
from icestream.messages.activity import ActivityColumns, SpanColumns, decode_activities
from icestream.messages.checks import BadMessage
from icestream.messages.plausible import ANY_TIME, Times
from icestream.messages.raw import RawColumns, decode_raws
from icestream.topics import ACTIVITY, RAW
from tests.data.handwritten import Raw
from tests.data.strategies import raws
from tests.fuzz.messages import Mutants

Decode = Callable[[Sequence[bytes], Sequence[Times]], list[RawColumns] | list[ActivityColumns]]


def _comparable(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.dtype, value.tolist()
    if isinstance(value, message_columns.Texts):
        return value.texts()
    return list(map(_comparable, value)) if isinstance(value, SpanColumns) else value


def _fields(columns: object) -> dict[str, object]:
    found = {field.name: _comparable(getattr(columns, field.name)) for field in dataclasses.fields(columns)}  # type: ignore[arg-type]
    return found | {"strings": list(found["strings"])}  # type: ignore[call-overload]


def _groups(messages: Sequence[bytes], size: int) -> list[Sequence[bytes]]:
    return [messages[first : first + size] for first in range(0, len(messages), size)]


def _alone(decode: Decode, messages: Sequence[bytes]) -> list[dict[str, object]] | None:
    try:
        return [_fields(decode([message], [ANY_TIME])[0]) for message in messages]
    except BadMessage:
        return None


def _together(decode: Decode, messages: Sequence[bytes]) -> list[dict[str, object]] | None:
    try:
        return list(map(_fields, decode(messages, [ANY_TIME] * len(messages))))
    except BadMessage:
        return None


@given(st.lists(raws(), max_size=5))
def test_raw_messages(given_raws: list[Raw]) -> None:
    messages = [raw.bytes() for raw in given_raws]
    expected = _alone(decode_raws, messages)
    assert expected is not None
    assert not messages or _together(decode_raws, messages) == expected


@pytest.mark.parametrize(("topic", "decode"), [(RAW, decode_raws), (ACTIVITY, decode_activities)])
def test_damaged_messages(topic: str, decode: Decode) -> None:
    mutants = Mutants(5)
    messages = [mutants.next(topic, number) for number in range(600)]
    good = [message for message in messages if _alone(decode, [message]) is not None]
    assert 100 < len(good) < 500
    for some in _groups(good, 7):
        assert _together(decode, some) == _alone(decode, some)
    for some in _groups(messages, 3):
        assert (_together(decode, some) is None) == (_alone(decode, some) is None)
