"""A message log: a file of Kafka messages, one after the other. It is the format of the spool and of recordings.

    file   = "icestream messages 1\\n" record*
    record = crc32 of the rest (u32), length of value (u32), of topic (u16), of key (u16), topic, key, value

Little-endian. Topics are without the prefix of the installation, so that another one can read them. Reading ends at the
first record that is cut off or damaged: its writer was killed while it wrote it.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from icestream.topics import PREFIX

MAGIC = b"icestream messages 1\n"
MAX_VALUE_BYTES = 16 << 20
_HEAD = struct.Struct("<IIHH")


class Message(NamedTuple):
    topic: str
    key: bytes
    value: bytes


class MessageLogError(ValueError):
    """The file is no message log."""


def encode(messages: Iterable[Message]) -> Iterator[bytes]:
    """The bytes of a message log, piece by piece."""
    yield MAGIC
    for message in messages:
        topic = message.topic.removeprefix(PREFIX).encode()
        body = _HEAD.pack(0, len(message.value), len(topic), len(message.key))[4:] + topic + message.key + message.value
        yield struct.pack("<I", zlib.crc32(body)) + body


def decode(file: BinaryIO) -> Iterator[Message]:
    """The messages of a message log up to the first damaged one. Raises MessageLogError where it is none."""
    if (start := file.read(len(MAGIC))) != MAGIC:
        raise MessageLogError(f"expected a message log of icestream, got a file that starts with {start!r}")
    while len(head := file.read(_HEAD.size)) == _HEAD.size:
        crc, size, topic_size, key_size = _HEAD.unpack(head)
        if size > MAX_VALUE_BYTES:
            return
        rest = file.read(topic_size + key_size + size)
        if len(rest) < topic_size + key_size + size or zlib.crc32(rest, zlib.crc32(head[4:])) != crc:
            return
        key_at = topic_size + key_size
        yield Message(PREFIX + rest[:topic_size].decode(), rest[topic_size:key_at], rest[key_at:])
