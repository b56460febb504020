"""Asks Kafka about the log of a partition, and reads messages that Faust did not deliver."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from icestream.kafka.clients import committed_positions, consumer
from icestream.kafka.log_mark import LogMark, absent
from icestream.kafka.readiness import Partition
from icestream.messages.plausible import ANY_LIMITS, TimeLimits
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW, STREAMS_GROUP
from streams.logs.log_reader import committed_in_log, log_consumer, read_with
from streams.partition.feed import Event

log = logging.getLogger(__name__)

_TIMEOUT_S = 5.0
_ASK_AGAIN_S = 5.0
_PORTION_BYTES = 1_000_000
_AS_FAUST = {"isolation.level": "read_uncommitted"}
"""As Faust, its consumers also see messages of transactions that are open."""
_Answer = TypeVar("_Answer")


class LogEnd(NamedTuple):
    """Kafka has the messages with offsets in [low, high)."""

    low: int
    high: int


class Lag(NamedTuple):
    """What Kafka has of a log, and the group's committed offset: what lies between is not processed yet."""

    end: LogEnd
    committed: int


class _Reader:
    """A consumer, made when it is needed first, on a thread of its own: one question at a time."""

    def __init__(self, create: Callable[[], Consumer], name: str) -> None:
        self._create = create
        self._consumer: Consumer | None = None
        self._thread = ThreadPoolExecutor(1, name)

    async def ask(self, question: Callable[[Consumer], _Answer]) -> _Answer:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, question)

    def close(self) -> None:
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    def _ask(self, question: Callable[[Consumer], _Answer]) -> _Answer:
        if self._consumer is None:
            self._consumer = self._create()
        return question(self._consumer)

    def _close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


class Logs:
    """Asks on threads of its own, until `close`. A partition without a leader takes seconds to ask about. So what
    nobody waits for is asked on another thread, and messages are read on a third."""

    def __init__(self, settings: KafkaSettings, limits: TimeLimits = ANY_LIMITS) -> None:
        """`limits`: of the times in messages."""
        self._settings = settings
        self._limits = limits
        ask = partial(consumer, settings, STREAMS_GROUP, log_level=2, **_AS_FAUST)
        read = partial(log_consumer, settings, **_AS_FAUST)
        self._ends, self._lags = _Reader(ask, "log ends"), _Reader(ask, "lags")
        self._messages = _Reader(read, "skipped messages")

    async def end(self, topic: str, partition: int) -> LogEnd:
        """Raises KafkaException when Kafka does not answer."""
        return await self._ends.ask(lambda reader: _end(reader, topic, partition))

    async def lag(self, topic: str, partition: int) -> Lag:
        """Raises KafkaException when Kafka does not answer. Does not hold up `end`."""
        return await self._lags.ask(lambda reader: _lag(reader, topic, partition))

    async def absent(self, marks: Mapping[Partition, LogMark]) -> set[Partition]:
        """As `log_mark.absent`. Does not hold up other questions. Raises KafkaException."""
        return await asyncio.to_thread(absent, self._settings, marks, **_AS_FAUST)

    async def filled(self, partitions: set[int]) -> AsyncIterator[int]:
        """Yields the partitions with messages in raw or activity. Asks until Kafka has answered for each of them."""
        left = partitions
        while left:
            silent = set()
            for partition in sorted(left):
                try:
                    lags = [await self.lag(topic, partition) for topic in (RAW, ACTIVITY)]
                except KafkaException as error:
                    log.debug("Kafka does not say what partition %d has: %s", partition, error)
                    silent.add(partition)
                    continue
                if any(lag.end.high > lag.end.low for lag in lags):
                    yield partition
            left = silent
            await asyncio.sleep(_ASK_AGAIN_S if left else 0)

    async def read(self, topic: str, partition: int, first: int, end: int) -> AsyncIterator[Event]:
        """Yields the messages with offsets in [first, end) that Kafka has: as with Faust, also those of transactions
        that are open. Holds nothing while they are processed. Raises KafkaException."""
        while portion := await self._messages.ask(partial(_portion, log_of=(topic, partition), first=first, end=end)):
            for message in portion:
                key, value, (_, unix_milli) = message.key(), message.value() or b"", message.timestamp()
                first = (message.offset() or 0) + 1
                yield Event(partition, first - 1, key, value, _not_acknowledged, self._limits.collected(unix_milli))

    def close(self) -> None:
        for reader in (self._ends, self._lags, self._messages):
            reader.close()


def _end(reader: Consumer, topic: str, partition: int) -> LogEnd:
    return LogEnd(*reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S))


def _lag(reader: Consumer, topic: str, partition: int) -> Lag:
    end = _end(reader, topic, partition)
    [position] = committed_positions(reader, [TopicPartition(topic, partition)], _TIMEOUT_S)
    return Lag(end, max(committed_in_log(position.offset, *end), end.low))


def _portion(reader: Consumer, log_of: tuple[str, int], first: int, end: int) -> list[Message]:
    """Reads the next messages; [] after the last one."""
    portion: list[Message] = []
    size = 0
    try:
        for message in read_with(reader, *log_of, first, end):
            portion.append(message)
            size += len(message.value() or b"")
            if size >= _PORTION_BYTES:
                break
        return portion
    finally:
        reader.unassign()  # it fetches nothing while nobody asks


def _not_acknowledged() -> None:
    """Faust does not know of the message. It commits when it delivers the message once more, or a later one."""
