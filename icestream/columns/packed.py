"""Columns of messages as numpy arrays: read and written.

A packed repeated fixed-width field is, on the wire, its tag, its length in bytes, and the array's own little-endian
bytes (protobuf encoding specification, "Packed Repeated Fields"). So a column is written without a Python loop: its
bytes are appended to the serialized rest of the message, as parsers accept fields in any order. This takes 1 ns for an
element; the protobuf package takes 50 ns to fill such a field, and to read it.

`parse` reads columns without a loop, too: it parses a message as a type whose columns are declared as bytes, which has
the same wire format. So has a type whose messages are declared as bytes: a reader of many small ones reads them
together (icestream/columns/message_columns.py)."""

from collections.abc import Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import TypeVar, cast

import numpy as np
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

_DTYPES: dict[int, "np.dtype[np.generic]"] = {
    FieldDescriptor.TYPE_FIXED32: np.dtype("<u4"),
    FieldDescriptor.TYPE_SFIXED32: np.dtype("<i4"),
    FieldDescriptor.TYPE_FIXED64: np.dtype("<u8"),
    FieldDescriptor.TYPE_SFIXED64: np.dtype("<i8"),
    FieldDescriptor.TYPE_FLOAT: np.dtype("<f4"),
    FieldDescriptor.TYPE_DOUBLE: np.dtype("<f8"),
}
_LENGTH_DELIMITED = 2
_MAX_PIECES = 1000
"""Pieces of a column that are read here. Our encoders write one."""
_PACKAGE = "icestream.columns.packed"
"""The package of the types of `_as_bytes`. The file of such a type begins with the name of the original type."""

MessageT = TypeVar("MessageT", bound=Message)


def parse(kind: type[MessageT], data: bytes, unread: str = "") -> MessageT:
    """Returns a message whose columns only `column` can read, and the repeated messages `unread` only `messages`. What
    is in these is not parsed. Raises DecodeError, like the protobuf package."""
    message = _as_bytes(kind.DESCRIPTOR, unread)()
    message.ParseFromString(data)
    # Unknown are fields of a newer version, or of a column that is not packed, which is legal.
    if len(UnknownFieldSet(message)):
        return kind.FromString(data)
    message.DiscardUnknownFields()  # of messages in this one
    for name, dtype in _columns(kind.DESCRIPTOR).items():
        pieces = getattr(message, name)
        if len(pieces) > _MAX_PIECES:  # legal, too, and would take seconds in Python
            return kind.FromString(data)
        for piece in pieces:
            if len(piece) % dtype.itemsize:
                raise DecodeError(f"{name} is cut off")
    return cast(MessageT, message)


def parse_header(kind: type[MessageT], data: bytes) -> MessageT:
    """Returns a message without its repeated fields: what is in these is not parsed. Raises DecodeError."""
    return cast(MessageT, _header(kind.DESCRIPTOR).FromString(data))


def column(message: Message, name: str) -> np.ndarray:
    """Returns the repeated fixed-width field `name` as a new array of its width and signedness, shape (rows,).

    Raises ValueError where the message has no such field.
    """
    dtype = _types(_type(message)).get(name)
    if dtype is None:
        raise _no_column(message, name)
    values = getattr(message, name)
    if _is_as_bytes(_type(message)):
        return np.frombuffer(bytearray(values[0] if len(values) == 1 else b"".join(values)), dtype)
    return np.array(values, dtype=dtype)


def columns(messages: Sequence[Message], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the field `name` of n messages of one type, one after the other, and the rows of each: int64 (n,)."""
    if len(messages) == 1:
        values = column(messages[0], name)
        return values, np.array([len(values)])
    dtype = _types(_type(messages[0]))[name]
    if all(map(_is_as_bytes, set(map(_type, messages)))):
        data = [values[0] if len(values) == 1 else b"".join(values) for values in map(attrgetter(name), messages)]
    else:
        data = [column(message, name).tobytes() for message in messages]
    counts = np.fromiter(map(len, data), np.int64, len(data)) // dtype.itemsize
    return np.frombuffer(bytearray(b"".join(data)), dtype), counts


def messages(message: Message, name: str) -> list[bytes]:
    """Returns the bytes of each of the repeated messages `name`."""
    values = getattr(message, name)
    return list(values) if _is_as_bytes(_type(message)) else [one.SerializeToString() for one in values]


def serialize(message: Message, columns: Mapping[str, np.ndarray]) -> bytes:
    """Returns the bytes of `message` with the given columns appended.

    Raises ValueError where a column is not a repeated fixed-width field, or does not fit its type.
    """
    parts = [message.SerializeToString()]
    for name, values in columns.items():
        dtype = _types(_type(message)).get(name)
        if dtype is None:
            raise _no_column(message, name)
        array = np.asarray(values)
        if not len(array):
            continue
        if array.dtype != dtype:
            converted = array.astype(dtype)
            if not np.array_equal(converted, array):
                raise ValueError(f"{message.DESCRIPTOR.name}.{name}: values do not fit {dtype}")
            array = converted
        data = np.ascontiguousarray(array).tobytes()
        number = message.DESCRIPTOR.fields_by_name[name].number
        parts += [varint(number << 3 | _LENGTH_DELIMITED), varint(len(data)), data]
    return b"".join(parts)


def _no_column(message: Message, name: str) -> ValueError:
    return ValueError(f"{message.DESCRIPTOR.name}.{name} is not a repeated fixed-width field")


def _type(message: Message) -> object:
    """Returns the type, as something that mypy takes to be hashable."""
    return type(message)


@cache
def _types(kind: object) -> "dict[str, np.dtype[np.generic]]":
    """Returns the columns of a type: looked up by that, as to ask a message for its descriptor takes as long as a
    column."""
    return _columns(cast(type[Message], kind).DESCRIPTOR)


@cache
def _columns(kind: Descriptor) -> "dict[str, np.dtype[np.generic]]":
    """Returns the columns of a type of messages, also of one of `_as_bytes`."""
    if kind.file.package == _PACKAGE:
        return _columns(kind.file.pool.FindMessageTypeByName(kind.file.name.partition("/")[0]))
    return {field.name: _DTYPES[field.type] for field in kind.fields if field.is_repeated and field.type in _DTYPES}


@cache
def _is_as_bytes(kind: object) -> bool:
    return bool(cast(type[Message], kind).DESCRIPTOR.file.package == _PACKAGE)


@cache
def _as_bytes(kind: Descriptor, unread: str) -> type[Message]:
    """Returns a type with the wire format of `kind` that declares columns, and the messages `unread`, as bytes.

    Such a field is repeated, because a column may come in several pieces.
    """
    message = DescriptorProto()
    kind.CopyToProto(message)
    message.name += unread
    for field in message.field:
        if field.name in _columns(kind) or field.name == unread:
            field.type = FieldDescriptorProto.TYPE_BYTES
            field.ClearField("type_name")
            field.ClearField("options")
    return _declared(kind, message, f"{kind.full_name}/{unread}")


@cache
def _header(kind: Descriptor) -> type[Message]:
    """Returns a type with the wire format of `kind` that has no repeated fields."""
    message = DescriptorProto()
    kind.CopyToProto(message)
    message.name += "Header"
    fields = [field for field in message.field if field.label != FieldDescriptorProto.LABEL_REPEATED]
    del message.field[:]
    message.field.extend(fields)
    return _declared(kind, message, f"{kind.full_name}/header")


def _declared(kind: Descriptor, message: DescriptorProto, file_name: str) -> type[Message]:
    original = kind.file
    file = FileDescriptorProto(
        name=file_name,
        package=_PACKAGE,
        syntax="proto3",
        dependency=[original.name, *(needed.name for needed in original.dependencies)],
        message_type=[message],
    )
    pool = original.pool
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{message.name}"))


def varint(value: int) -> bytes:
    """Returns a number as protobuf writes it (base 128, low bits first)."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
