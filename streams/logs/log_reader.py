"""Reads a range of offsets of one partition, message by message."""

import contextlib
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from icestream.kafka.clients import consumer
from icestream.settings import KafkaSettings
from icestream.topics import STREAMS_GROUP

_TIMEOUT_S = 10.0
_IDLE_S = 30.0
"""Kafka is asked again for so long. If it then has not answered, what was read is not all that is there."""
_AHEAD_KB = 2048
"""What a reader may hold of messages that come next: a worker may recover many partitions at once."""


def log_consumer(settings: KafkaSettings, **more: Any) -> Consumer:
    """Returns a consumer for the functions below, which notices the end of a log."""
    of_logs = {"enable.partition.eof": True, "queued.max.messages.kbytes": _AHEAD_KB, "log_level": 2}
    return consumer(settings, STREAMS_GROUP, **of_logs | more)


def log_range(reader: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """Returns the offsets [low, high) that Kafka has. Raises KafkaException."""
    low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S)
    return low, high


def committed_in_log(offset: int, low: int, high: int) -> int:
    """Returns a committed offset as one of the log [low, high); 0 where nothing was committed (`offset` is negative).

    If the log ends before that offset, its topic was made anew, and all of it is ahead; unless it lacks its first
    messages: then it is the old log, Kafka has lost its last messages, and only what will come is ahead.
    """
    if offset <= high:
        return max(offset, 0)
    return high if low else 0


def read_range(settings: KafkaSettings, topic: str, partition: int, first: int, end: int) -> Iterator[Message]:
    """Yields the messages with offsets in [first, end) that Kafka still has. Raises KafkaException."""
    with contextlib.closing(log_consumer(settings)) as reader:
        yield from read_with(reader, topic, partition, first, end)


def read_with(reader: Consumer, topic: str, partition: int, first: int, end: int) -> Iterator[Message]:
    """As `read_range`, with a consumer that notices the end of a log, which keeps the partition assigned."""
    low, high = log_range(reader, topic, partition)
    first, end = max(first, low), min(end, high)
    if first >= end:
        return
    reader.assign([TopicPartition(topic, partition, first)])
    while True:
        message = reader.poll(_IDLE_S)
        if message is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer for {_IDLE_S:.0f} s"))
        if (error := message.error()) is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        if error is None and (message.offset() or 0) < end:
            yield message
        # At the end there may be no message, but the end of a transaction.
        if error is not None or (message.offset() or 0) >= end - 1:
            return
