"""Whether the log of a partition is still the one that a consumer has read.

An offset alone does not identify a message. Offsets begin again when a topic is deleted and made anew. They are given
to other messages when Kafka has lost the end of a log, or was put back to an old copy. So whoever remembers an offset
remembers a mark of the last message before it as well, and looks whether Kafka still has that message there.
"""

import contextlib
import re
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from confluent_kafka import Message, TopicPartition

from icestream.kafka.clients import consumer, first_messages
from icestream.kafka.readiness import Partition
from icestream.settings import KafkaSettings
from icestream.topics import UNREAD_GROUP

_ANSWER_S = 30.0
_LOOKED_AT_BYTES = 4096
"""Our messages begin with their batch ID, so this much of them is enough, and takes no time worth mentioning."""


class LogMark(NamedTuple):
    """What is remembered of a message."""

    offset: int
    checksum: int

    @classmethod
    def from_message(cls, message: Message) -> "LogMark":
        """Returns the mark of a consumed message."""
        return cls(message.offset() or 0, checksum(message.value()))

    @classmethod
    def parse(cls, text: str) -> "LogMark | None":
        """Reads what `str` wrote; None for anything else."""
        match = re.fullmatch(r"(\d{1,19}):([0-9a-f]{8})", text)
        return cls(int(match[1]), int(match[2], 16)) if match else None

    def __str__(self) -> str:
        return f"{self.offset}:{self.checksum:08x}"


def checksum(value: bytes | None, before: int = 0) -> int:
    """Returns 32 bits that tell a message from others. `before`: the checksum of the messages before it."""
    value = value or b""
    return zlib.crc32(value[:_LOOKED_AT_BYTES], before ^ len(value))


def absent(settings: KafkaSettings, marks: Mapping[Partition, LogMark], **more: Any) -> set[Partition]:
    """Returns the partitions in which Kafka has another message, or none, at the offset of the mark; but not where it
    has deleted the message because of its age. `more`: settings of the consumer. Raises KafkaException."""
    few = {"fetch.message.max.bytes": 10_000, "queued.min.messages": 1, "queued.max.messages.kbytes": 2048}
    positions = [TopicPartition(*partition, mark.offset) for partition, mark in marks.items()]
    gone = set()
    reader = consumer(settings, UNREAD_GROUP, log_level=2, **{"enable.partition.eof": True} | few | more)
    with contextlib.closing(reader):
        for message in first_messages(reader, positions):
            partition = (message.topic() or "", message.partition() or 0)
            if message.error() is not None or LogMark.from_message(message) != marks[partition]:
                low, _ = reader.get_watermark_offsets(TopicPartition(*partition), timeout=_ANSWER_S)
                if low <= marks[partition].offset:
                    gone.add(partition)
    return gone
