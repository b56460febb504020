"""Asks Kafka where the log of a partition begins and ends, and reads messages that Faust did not deliver."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from confluent_kafka import TopicPartition

from icestream.kafka import consumer
from icestream.messages.plausible import ANY_LIMITS, TimeLimits
from icestream.settings import KafkaSettings
from icestream.topics import STREAMS_GROUP
from streams.feed import Event
from streams.log_reader import read_range

_TIMEOUT_S = 5.0


class LogEnd(NamedTuple):
    """Kafka has the messages with offsets in [low, high)."""

    low: int
    high: int


class Logs:
    """Asks on a thread of its own, until `close`."""

    def __init__(self, settings: KafkaSettings, limits: TimeLimits = ANY_LIMITS) -> None:
        """`limits`: of the times in messages."""
        self._settings = settings
        self._limits = limits
        self._reader = consumer(settings, STREAMS_GROUP, log_level=2)
        self._thread = ThreadPoolExecutor(1, "log ends")

    async def end(self, topic: str, partition: int) -> LogEnd:
        """Raises KafkaException when Kafka does not answer."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._end, topic, partition)

    async def read(self, topic: str, partition: int, first: int, end: int) -> AsyncIterator[Event]:
        """Yields the messages with offsets in [first, end) that Kafka has: as with Faust, also those of transactions
        that are open. Raises KafkaException."""
        messages = read_range(self._settings, topic, partition, first, end, **{"isolation.level": "read_uncommitted"})
        while (message := await asyncio.to_thread(next, messages, None)) is not None:
            key, value, (_, unix_milli) = message.key(), message.value() or b"", message.timestamp()
            times = self._limits.collected(unix_milli)
            yield Event(partition, message.offset() or 0, key, value, _not_acknowledged, times)

    def close(self) -> None:
        self._thread.submit(self._reader.close)
        self._thread.shutdown(wait=False)

    def _end(self, topic: str, partition: int) -> LogEnd:
        return LogEnd(*self._reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S))


def _not_acknowledged() -> None:
    """Faust does not know of the message. When a later one is acknowledged, it commits an offset behind both."""
