"""Whether the log of a partition is still the one that a consumer has read.

An offset alone does not identify a message. Offsets begin again when a topic is deleted and made anew. They are given
to other messages when Kafka has lost the end of a log, or was put back to an old copy. So whoever remembers an offset
remembers a mark of the last message before it as well, and looks whether Kafka still has that message there.
"""

import re
import time
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from icestream.kafka import consumer
from icestream.readiness import Partition
from icestream.settings import KafkaSettings
from icestream.topics import UNREAD_GROUP

_ANSWER_S = 30.0
_LOOKED_AT_BYTES = 4096
"""Our messages begin with their batch ID, so this much of them is enough, and takes no time worth mentioning."""


class Mark(NamedTuple):
    """What is remembered of a message."""

    offset: int
    checksum: int

    @classmethod
    def of(cls, message: Message) -> "Mark":
        """Returns the mark of a consumed message."""
        return cls(message.offset() or 0, checksum(message.value()))

    @classmethod
    def parse(cls, text: str) -> "Mark | None":
        """Reads what `str` wrote; None for anything else."""
        match = re.fullmatch(r"(\d{1,19}):([0-9a-f]{8})", text)
        return cls(int(match[1]), int(match[2], 16)) if match else None

    def __str__(self) -> str:
        return f"{self.offset}:{self.checksum:08x}"


def checksum(value: bytes | None, before: int = 0) -> int:
    """Returns 32 bits that tell a message from others. `before`: the checksum of the messages before it."""
    value = value or b""
    return zlib.crc32(value[:_LOOKED_AT_BYTES], before ^ len(value))


def absent(settings: KafkaSettings, marks: Mapping[Partition, Mark]) -> set[Partition]:
    """Returns the partitions in which Kafka has another message, or none, at the offset of the mark; but not where it
    has deleted the message because of its age. Raises KafkaException."""
    few = {"fetch.message.max.bytes": 10_000, "queued.min.messages": 1, "queued.max.messages.kbytes": 2048}
    reader = consumer(settings, UNREAD_GROUP, log_level=2, **{"enable.partition.eof": True} | few)
    try:
        reader.assign([TopicPartition(*partition, mark.offset) for partition, mark in marks.items()])
        waiting, gone = dict(marks), set()
        deadline = time.monotonic() + _ANSWER_S
        while waiting:
            message = reader.poll(1.0)
            if message is None and time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer for {_ANSWER_S:.0f} s"))
            if message is None:
                continue
            error, partition = message.error(), (message.topic() or "", message.partition() or 0)
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            mark = waiting.pop(partition, None)
            if mark is not None and (error is not None or Mark.of(message) != mark):
                low, _ = reader.get_watermark_offsets(TopicPartition(*partition), timeout=_ANSWER_S)
                gone |= {partition} if low <= mark.offset else set()
        return gone
    finally:
        reader.close()
