"""Many small messages of one type, such as spans, as columns: read without a Python loop.

Encoders write the fields of a message in the order of their numbers, each once at most. So `read` goes through the
fields once, for all messages at the same time. Messages that were written in another way, which is legal, the protobuf
package reads.
"""

from collections.abc import Sequence
from functools import cache
from itertools import accumulate, pairwise, repeat
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from icestream.columns import index_ranges

_VARINT, _FIXED64, _DELIMITED = 0, 1, 2
_WIRE_TYPES = {
    FieldDescriptor.TYPE_UINT32: _VARINT,
    FieldDescriptor.TYPE_FIXED64: _FIXED64,
    FieldDescriptor.TYPE_BYTES: _DELIMITED,
    FieldDescriptor.TYPE_STRING: _DELIMITED,
}
_VARINT_BYTES = 5
_TOO_LARGE = 2**40
_NONE = np.zeros(1, np.int64)
_PADDING = bytes(16)
"""So that what follows the last byte can be looked at: a tag, and the longest varint or a fixed64."""


class Texts(NamedTuple):
    """n texts, or values of bytes, as Arrow keeps them."""

    data: np.ndarray  # uint8
    offsets: np.ndarray  # int32 (n + 1,): text i is data[offsets[i]:offsets[i + 1]]

    @property
    def lengths(self) -> np.ndarray:
        """Bytes of each text, int32 (n,)."""
        lengths: np.ndarray = self.offsets[1:] - self.offsets[:-1]
        return lengths

    def rows(self, first: int, end: int) -> "Texts":
        return Texts(self.data, self.offsets[first : end + 1])

    def text(self, row: int) -> str:
        return bytes(self.data[self.offsets[row] : self.offsets[row + 1]]).decode()

    def texts(self) -> list[str]:
        return [self.text(row) for row in range(len(self.offsets) - 1)]

    def unique(self) -> set[str]:
        """Returns each text once."""
        data, offsets = self.data.tobytes(), self.offsets.tolist()
        return {text.decode() for text in {data[first:end] for first, end in pairwise(offsets)}}

    def padded(self, width: int) -> np.ndarray:
        """Returns values of at most `width` bytes as uint8 (n, width), with zeros behind them."""
        data = self.data[self.offsets[0] : self.offsets[-1]]
        if len(data) == width * (len(self.offsets) - 1):  # no value is longer, so none is shorter
            return data.reshape(-1, width)
        rows = np.zeros((len(self.offsets) - 1, width), np.uint8)
        if len(data):
            rows[np.arange(width) < self.lengths[:, None]] = data
        return rows


class MessageColumns(NamedTuple):
    """The fields of n messages by name; what a message does not have is 0 or empty."""

    numbers: dict[str, np.ndarray]  # int64 (n,); uint64 for fixed64
    texts: dict[str, Texts]  # of n texts each


def join(parts: Sequence[Texts]) -> Texts:
    """Returns the texts of at least one part, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    data = np.concatenate([one.data[one.offsets[0] : one.offsets[-1]] for one in parts])
    lengths = np.concatenate([one.lengths for one in parts])
    return Texts(data, _offsets(lengths))


def read(kind: type[Message], messages: Sequence[bytes]) -> MessageColumns:
    """Returns the fields of serialized messages.

    `kind` has fields of the types in _WIRE_TYPES only, with numbers below 16. Raises DecodeError.
    """
    return _read_at_once(kind, messages) or of_parsed(kind, list(map(kind.FromString, messages)))


def of_parsed(kind: type[Message], messages: Sequence[Message]) -> MessageColumns:
    """Returns the fields of messages, as `read`; it is quicker for a hundred of them that were parsed with another
    message."""
    fields = _fields(kind.DESCRIPTOR)
    rows = map(attrgetter(*(field.name for field in fields)), messages)
    values = zip(*rows, strict=True) if messages else repeat(())
    columns = MessageColumns({}, {})
    for field, column in zip(fields, values, strict=False):
        if field.wire_type != _DELIMITED:
            columns.numbers[field.name] = np.array(column, np.uint64 if field.wire_type == _FIXED64 else np.int64)
        else:
            columns.texts[field.name] = _of_texts(column) if field.is_text else _of_values(column)
    return columns


def _of_texts(texts: Sequence[str]) -> Texts:
    together = "".join(texts)
    if not together or not together.isascii():
        return _of_values(list(map(str.encode, texts)))
    offsets = np.fromiter(accumulate(map(len, texts), initial=0), np.int32, len(texts) + 1)
    return Texts(np.frombuffer(together.encode(), np.uint8), offsets)


def _of_values(values: Sequence[bytes]) -> Texts:
    if not any(values):
        return Texts(np.zeros(0, np.uint8), np.zeros(len(values) + 1, np.int32))
    offsets = np.fromiter(accumulate(map(len, values), initial=0), np.int32, len(values) + 1)
    return Texts(np.frombuffer(b"".join(values), np.uint8), offsets)


def _read_at_once(kind: type[Message], messages: Sequence[bytes]) -> MessageColumns | None:
    """Returns None if a message has anything but its fields in their order."""
    data = np.frombuffer(b"".join((*messages, _PADDING)), np.uint8)
    ends = np.cumsum(np.fromiter(map(len, messages), np.int64, len(messages)))
    at = np.concatenate([_NONE, ends[:-1]]) if len(ends) else ends
    columns = MessageColumns({}, {})
    for name, tag, wire_type, is_text in _fields(kind.DESCRIPTOR):
        has = data[at] == tag
        has &= at < ends
        if not has.any():
            value = np.zeros(len(at), np.uint64 if wire_type == _FIXED64 else np.int64)
            size = np.zeros(len(at), np.int64)
        elif wire_type == _FIXED64:
            value, size = np.where(has, _windows(data, at + 1, 8).view("<u8")[:, 0], np.uint64(0)), 9 * has
        else:
            value, size = _varints(data, at + 1)
            value *= has
            size = (size + 1) * has
        at = at + size
        if wire_type == _DELIMITED:
            first, at = at, at + value
        if (at > ends).any():
            return None
        if wire_type != _DELIMITED:
            columns.numbers[name] = value
            continue
        columns.texts[name] = texts = _texts(data, first, value)
        if is_text and not _are_utf8(texts):
            return None
    return columns if np.array_equal(at, ends) else None


class _Field(NamedTuple):
    name: str
    tag: int
    wire_type: int
    is_text: bool


@cache
def _fields(kind: Descriptor) -> list[_Field]:
    """Returns the fields in the order of their numbers."""
    return [
        _Field(field.name, field.number << 3 | wire_type, wire_type, field.type == FieldDescriptor.TYPE_STRING)
        for field in sorted(kind.fields, key=lambda field: field.number)
        for wire_type in [_WIRE_TYPES[field.type]]
    ]


def _varints(data: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the varints at these places, and how many bytes each takes. One that is too long is a large number."""
    byte = data[at].astype(np.int64)
    number, size = byte & 0x7F, np.ones(len(at), np.int64)
    more = byte > 0x7F
    while more.any():
        byte = data[at + size]
        number |= np.where(more, (byte & np.int64(0x7F)) << 7 * size, 0)
        size += more
        more &= byte > 0x7F
        if more.any() and size.max() == _VARINT_BYTES:
            return np.where(more, _TOO_LARGE, number), size
    return number, size


def _windows(data: np.ndarray, at: np.ndarray, width: int) -> np.ndarray:
    """Returns the bytes at these places: uint8 (n, width)."""
    windows: np.ndarray = np.ndarray((len(data) - width + 1, width), np.uint8, data, strides=(1, 1))[at]
    return windows


def _texts(data: np.ndarray, first: np.ndarray, lengths: np.ndarray) -> Texts:
    offsets = _offsets(lengths)
    width = int(lengths[0]) if len(lengths) else 0
    if width <= len(_PADDING) and (lengths == width).all():  # IDs, or nothing
        return Texts(_windows(data, first, width).ravel(), offsets)
    return Texts(data[index_ranges.expand(first, lengths)], offsets)


def _offsets(lengths: np.ndarray) -> np.ndarray:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _are_utf8(texts: Texts) -> bool:
    encoded = texts.data.tobytes()
    if encoded.isascii():
        return True
    try:
        encoded.decode()
    except UnicodeDecodeError:
        return False
    starts = texts.offsets[:-1][texts.lengths > 0]
    return not (texts.data[starts] & 0xC0 == 0x80).any()  # no text begins within a character
