"""Reads many small protobuf messages at once, as columns (protobuf encoding specification, "Message Structure").

The protobuf package makes a Python object of each message and of each of its numbers, which takes microseconds. Here
numpy reads the first field of all messages, then the second, and so on. The messages may hold numbers that are varints,
packed lists of them, and messages of such fields; all of that is nothing but varints.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from icestream.columns import index_ranges

MAX_FIELDS = 300
"""The most fields of a message that are read. Each round takes time, even if only one message has that many fields."""
PORTION_BYTES = 1_000_000
"""The most bytes of one message, and of messages that are read together: each takes 100 bytes of memory meanwhile."""
PORTION_MESSAGES = 100_000
_MAX_VARINT = 10
_VARINT, _LENGTH_DELIMITED = 0, 2


class NotNumbers(Exception):
    """Some message is cut off, or holds fields of other kinds, or is too large, or has too many fields."""


@dataclass(frozen=True)
class Messages:
    """m messages, each a range [first, end) of v varints."""

    value: np.ndarray  # uint64 (v,)
    end_byte: np.ndarray  # int64 (v,), where each varint ends in the bytes of all
    first: np.ndarray  # int64 (m,)
    end: np.ndarray  # int64 (m,)


class Repeated(NamedTuple):
    """The n values of a field: message after message, in their order."""

    message: np.ndarray  # int64 (n,), which message each is of
    value: np.ndarray  # uint64 (n,)


@dataclass(frozen=True)
class MessageFields:
    """The f fields of some messages: the first of each, then the second, and so on."""

    of: Messages
    message: np.ndarray  # int64 (f,)
    tag: np.ndarray  # uint64 (f,), number << 3 | wire type
    first: np.ndarray  # int64 (f,), the range of varints that it holds
    end: np.ndarray  # int64 (f,)

    def numbers(self, number: int) -> np.ndarray:
        """Returns a field of each message, uint64 (m,): the last one where it has several, 0 where it has none."""
        rows = np.flatnonzero(self.tag == (number << 3 | _VARINT))
        found = np.zeros(len(self.of.first), np.uint64)
        found[self.message[rows]] = self.of.value[self.first[rows]]
        return found

    def repeated(self, number: int) -> Repeated:
        """Returns a repeated field, packed or not."""
        rows = self._in_order(self.tag >> np.uint64(3) == number)
        count = self.end[rows] - self.first[rows]
        values = self.of.value[index_ranges.expand(self.first[rows], count)]
        return Repeated(np.repeat(self.message[rows], count), values)

    def messages(self, number: int) -> tuple[np.ndarray, Messages]:
        """Returns the messages of a repeated field, and which message each is of: int64."""
        rows = self._in_order(self.tag == (number << 3 | _LENGTH_DELIMITED))
        return self.message[rows], Messages(self.of.value, self.of.end_byte, self.first[rows], self.end[rows])

    def _in_order(self, chosen: np.ndarray) -> np.ndarray:
        """Returns the rows of the chosen fields, message after message."""
        rows = np.flatnonzero(chosen)
        return rows[np.argsort(self.message[rows], kind="stable")]


def portions(serialized: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Yields messages that may be read together, in their order: at least one portion, which may be empty."""
    if len(serialized) <= PORTION_MESSAGES and sum(map(len, serialized)) < PORTION_BYTES:
        yield serialized
        return
    for begin in range(0, len(serialized), PORTION_MESSAGES):
        some = serialized[begin : begin + PORTION_MESSAGES]
        end = np.cumsum(np.fromiter(map(len, some), np.int64, len(some)))
        cuts = np.flatnonzero(np.diff(end // PORTION_BYTES)) + 1
        for first, last in itertools.pairwise([0, *cuts.tolist(), len(some)]):
            yield some[first:last]


def messages(serialized: Sequence[bytes]) -> Messages:
    """Raises NotNumbers."""
    lengths = np.fromiter(map(len, serialized), np.int64, len(serialized))
    if lengths.max(initial=0) > PORTION_BYTES:
        raise NotNumbers
    data = np.frombuffer(b"".join(serialized), np.uint8)
    end_byte = np.flatnonzero(data < 0x80) + 1
    width = np.diff(end_byte, prepend=0)
    if width.max(initial=0) > _MAX_VARINT or end_byte.max(initial=0) != len(data):
        raise NotNumbers
    end_of_message = np.cumsum(lengths)
    end = np.searchsorted(end_byte, end_of_message, side="right")
    if (np.concatenate([np.zeros(1, np.int64), end_byte])[end] != end_of_message).any():
        raise NotNumbers
    first = np.concatenate([np.zeros(1, np.int64), end[:-1]]) if len(end) else end
    return Messages(_values(data, end_byte - width, width), end_byte, first, end)


def _values(data: np.ndarray, start: np.ndarray, width: np.ndarray) -> np.ndarray:
    value: np.ndarray = (data[start] & 0x7F).astype(np.uint64)
    for position in range(1, int(width.max(initial=0))):
        rows = np.flatnonzero(width > position)
        byte = (data[start[rows] + position] & 0x7F).astype(np.uint64)
        value[rows] |= byte << np.uint64(7 * position)
    return value


def fields(of: Messages) -> MessageFields:
    """Raises NotNumbers."""
    at = of.first.copy()
    rows = np.flatnonzero(at < of.end)
    parts: list[tuple[np.ndarray, ...]] = []
    while len(rows):
        if len(parts) == MAX_FIELDS:
            raise NotNumbers
        tag, first, end = _next_fields(of, at[rows], of.end[rows])
        parts.append((rows, tag, first, end))
        at[rows] = end
        rows = rows[end < of.end[rows]]
    if not parts:
        none = np.empty(0, np.int64)
        return MessageFields(of, none, none.astype(np.uint64), none, none)
    message, tag, first, end = (np.concatenate(column) for column in zip(*parts, strict=True))
    wire_type = tag & np.uint64(7)
    if ((wire_type != _VARINT) & (wire_type != _LENGTH_DELIMITED)).any() or (tag < 8).any():
        raise NotNumbers
    if (end > of.end[message]).any():
        raise NotNumbers
    return MessageFields(of, message, tag, first, end)


def _next_fields(of: Messages, at: np.ndarray, limit: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the tags of the fields that begin at these varints, and the ranges of varints that they hold."""
    first = at + 1
    if (first >= limit).any():
        raise NotNumbers
    tag, end = of.value[at], at + 2
    delimited = np.flatnonzero(tag & np.uint64(7) == _LENGTH_DELIMITED)
    if len(delimited):
        length = of.value[first[delimited]]
        if int(length.max()) > of.end_byte[-1]:
            raise NotNumbers
        end_byte = of.end_byte[first[delimited]] + length.astype(np.int64)
        last = np.searchsorted(of.end_byte, end_byte)
        if last.max() >= len(of.end_byte) or (of.end_byte[last] != end_byte).any():
            raise NotNumbers
        first[delimited] += 1
        end[delimited] = last + 1
    return tag, first, end
