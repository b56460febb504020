"""Asks Kafka where the log of a partition begins and ends."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from confluent_kafka import TopicPartition

from icestream.kafka import consumer
from icestream.settings import KafkaSettings
from icestream.topics import STREAMS_GROUP

_TIMEOUT_S = 5.0


class LogEnd(NamedTuple):
    """Kafka has the messages with offsets in [low, high)."""

    low: int
    high: int


class LogEnds:
    """Asks on a thread of its own, until `close`."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._reader = consumer(settings, STREAMS_GROUP, log_level=2)
        self._thread = ThreadPoolExecutor(1, "log ends")

    async def ask(self, topic: str, partition: int) -> LogEnd:
        """Raises KafkaException when Kafka does not answer."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, topic, partition)

    def close(self) -> None:
        self._thread.submit(self._reader.close)
        self._thread.shutdown(wait=False)

    def _ask(self, topic: str, partition: int) -> LogEnd:
        return LogEnd(*self._reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S))
