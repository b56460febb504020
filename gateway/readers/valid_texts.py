"""Texts that are no valid Unicode, in protobuf and in JSON. Many senders do not check what they send, such as the URL
of a request, or a name that was cut within a character. One such text must not cost the whole request, which may have
what many hosts sent."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar, cast

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from icestream.labels.surrogates import without_surrogates

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

MessageT = TypeVar("MessageT", bound=Message)


def parse(kind: type[MessageT], data: bytes) -> MessageT:
    """Returns a message in whose texts U+FFFD stands for what is no UTF-8. Raises DecodeError."""
    try:
        return kind.FromString(data)
    except DecodeError:
        return kind.FromString(_repaired(cast(Descriptor, kind.DESCRIPTOR), data))


def load_json(data: bytes) -> Any:
    """Returns JSON in whose texts U+FFFD stands for what is invalid. Raises ValueError and RecursionError."""
    text = data.decode(json.detect_encoding(data), errors="replace")
    loaded = json.loads(text)
    return without_surrogates(loaded) if _ESCAPED_SURROGATE.search(text) else loaded


def load_object(data: bytes) -> dict[str, Any]:
    """As `load_json`. Raises ValueError also for JSON that is no object."""
    loaded = load_json(data)
    if not isinstance(loaded, dict):  # protobuf takes a list for an object without fields
        raise ValueError(f"expected an object, got {type(loaded).__name__}")
    return loaded


def _repaired(kind: Descriptor, data: bytes) -> bytes:
    """Returns a message that can be parsed as `kind`. Raises DecodeError if more than texts is wrong with it."""
    message = _as_bytes(kind).FromString(data)
    _repair(message, kind)
    return message.SerializeToString()


def _repair(message: Message, kind: Descriptor) -> None:
    """`message` is of the type `_as_bytes(kind)`."""
    for as_bytes, value in message.ListFields():
        field = kind.fields_by_number[as_bytes.number]
        if field.type == FieldDescriptor.TYPE_STRING and field.is_repeated:
            value[:] = map(_utf_8, value)
        elif field.type == FieldDescriptor.TYPE_STRING:
            setattr(message, field.name, _utf_8(value))
        elif field.message_type is not None and _has_texts(field.message_type):
            for one in value if field.is_repeated else (value,):
                _repair(one, field.message_type)


@cache
def _has_texts(kind: Descriptor) -> bool:
    """Whether messages of a type, or messages in them, may have texts."""
    seen: set[Descriptor] = set()
    left = [kind]
    while left:
        seen.add(one := left.pop())
        if any(field.type == FieldDescriptor.TYPE_STRING for field in one.fields):
            return True
        left += [of for field in one.fields if (of := field.message_type) is not None and of not in seen]
    return False


def _utf_8(text: bytes) -> bytes:
    return text.decode(errors="replace").encode()


@cache
def _as_bytes(kind: Descriptor) -> type[Message]:
    """Returns a type with the wire format of `kind` that declares texts as bytes."""
    pool = DescriptorPool()
    for file in dict.fromkeys(_files(kind.file)):
        declared = FileDescriptorProto()
        file.CopyToProto(declared)
        for message in declared.message_type:
            _declare_as_bytes(message)
        pool.Add(declared)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(kind.full_name))


def _files(file: FileDescriptor) -> Iterator[FileDescriptor]:
    """Yields a file after those that it needs."""
    for needed in file.dependencies:
        yield from _files(needed)
    yield file


def _declare_as_bytes(message: DescriptorProto) -> None:
    for field in message.field:
        if field.type == FieldDescriptorProto.TYPE_STRING:
            field.type = FieldDescriptorProto.TYPE_BYTES
    for nested in message.nested_type:
        _declare_as_bytes(nested)
