"""Mutated messages: bytes that are damaged, and fields that hold what no collector sends."""

import random
from collections.abc import Callable, Iterator

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_INTS = {
    FieldDescriptor.TYPE_FIXED32: (0, 2**32 - 1), FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_FIXED64: (0, 2**64 - 1), FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.TYPE_SFIXED32: (-(2**31), 2**31 - 1), FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_SFIXED64: (-(2**63), 2**63 - 1), FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_ENUM: (0, 99),
}  # fmt: skip
_EDGES = (0, 1, 2, -1, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**47, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
_TEXTS = ("", "x", "\x00", "a" * 1025, "b" * 5000, "é\U0001f9ca", "';DROP TABLE samples;--", "../../etc", "{}", "\n")
_DAY_NS = 86_400 * 10**9


def mutate(message: Message, draw: random.Random) -> bytes:
    """Returns the message with one or two mutations, or with damaged bytes. Changes `message`."""
    if draw.random() < 0.8:
        for _ in range(draw.choice((1, 1, 2))):
            _mutate_field(message, draw)
        return message.SerializeToString()
    data = bytearray(message.SerializeToString())
    for _ in range(draw.randint(1, 3)):
        draw.choice(_DAMAGES)(data, draw)
    return bytes(data)


def _mutate_field(message: Message, draw: random.Random) -> None:
    inside = [message, *_messages(message)]
    owner = draw.choice(inside) if draw.random() < 0.5 else message
    field = draw.choice(owner.DESCRIPTOR.fields)
    if field.is_repeated:
        _mutate_list(getattr(owner, field.name), field, draw)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        owner.ClearField(field.name)
    else:
        setattr(owner, field.name, _value(field, getattr(owner, field.name), draw))


def _mutate_list(values: object, field: FieldDescriptor, draw: random.Random) -> None:
    assert hasattr(values, "__delitem__")
    size = len(values)  # type: ignore[arg-type]
    action = draw.randrange(12)  # mostly the last: columns of other lengths are refused anyway
    if action == 0:
        del values[:]  # type: ignore[operator]
    elif action == 1 and size:
        del values[draw.randrange(size)]  # type: ignore[operator]
    elif action == 2 and size:
        values.extend(list(values) * draw.choice((1, 1, 1, 30)))  # type: ignore[call-overload, attr-defined]
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        values.add()  # type: ignore[attr-defined]
    elif action == 3 or not size:
        values.append(_value(field, 0, draw))  # type: ignore[attr-defined]
    else:
        row = draw.randrange(size)
        values[row] = _value(field, values[row], draw)  # type: ignore[index]


def _value(field: FieldDescriptor, now: object, draw: random.Random) -> object:
    if field.type in _INTS:
        low, high = _INTS[field.type]
        near = int(now) + draw.choice((1, -1, _DAY_NS, -_DAY_NS, 400 * _DAY_NS))  # type: ignore[call-overload]
        value = draw.choice((*_EDGES, near, near, draw.randint(low, high)))
        return min(max(value, low), high)
    if field.type == FieldDescriptor.TYPE_STRING:
        return draw.choice(_TEXTS)
    return draw.randbytes(draw.choice((0, 1, 7, 8, 15, 16, 24, 1000)))


def _messages(message: Message) -> Iterator[Message]:
    """All messages inside a message."""
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                yield inner
                yield from _messages(inner)


def _flip(data: bytearray, draw: random.Random) -> None:
    if data:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def _cut(data: bytearray, draw: random.Random) -> None:
    del data[draw.randint(0, len(data)) :]


def _drop(data: bytearray, draw: random.Random) -> None:
    at = draw.randint(0, len(data))
    del data[at : at + draw.randint(1, 20)]


def _insert(data: bytearray, draw: random.Random) -> None:
    at = draw.randint(0, len(data))
    data[at:at] = draw.randbytes(draw.randint(1, 20))


def _repeat(data: bytearray, draw: random.Random) -> None:
    at = draw.randint(0, len(data))
    data[at:at] = data[at : at + draw.randint(1, 200)]


_DAMAGES: tuple[Callable[[bytearray, random.Random], None], ...] = (_flip, _flip, _cut, _drop, _insert, _repeat)
