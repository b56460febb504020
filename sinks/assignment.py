"""The partitions that are assigned to a sink, and the messages that it has read but not written."""

import contextlib
import logging

from confluent_kafka import Consumer, Message, TopicPartition

from sinks import metrics
from sinks.pending import Pending
from sinks.ranges import InFlight
from sinks.sink import Sink

log = logging.getLogger(__name__)

Partition = tuple[str, int]
"""Topic and number."""
ASK_S = 10.0
"""How long Kafka has to answer a question about offsets."""


class Assignment:
    """Partitions, from `assigned` to `revoked`, with the messages that are not written yet."""

    def __init__(self, sink: Sink) -> None:
        self.pending: dict[Partition, Pending] = {}
        self._sink = sink
        self._new: set[Partition] = set()  # it is not known yet whether a range of them is in flight
        self._next_offset: dict[Partition, int] = {}

    def assigned(self, reader: Consumer, partitions: list[TopicPartition]) -> None:
        """A callback of `Consumer.subscribe`."""
        for p in partitions:
            self._new.add((p.topic, p.partition))

    def revoked(self, reader: Consumer, partitions: list[TopicPartition]) -> None:
        """A callback of `Consumer.subscribe`: drops what was read, which the next owner reads again."""
        for p in partitions:
            key = (p.topic, p.partition)
            self._new.discard(key)
            self.pending.pop(key, None)
            self._next_offset.pop(key, None)
            with contextlib.suppress(KeyError):
                metrics.LAG.remove(self._sink.name, p.topic, str(p.partition))

    def add(self, message: Message) -> None:
        """Keeps a message until it is written."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        key = (topic, partition)
        if key not in self.pending:
            self.pending[key] = Pending()
        self._count_gap(key, offset)
        self.pending[key].add(message)

    def find_ranges_in_flight(self, reader: Consumer) -> bool:
        """Asks Kafka for the ranges in flight of new partitions; False where none is new. Raises KafkaException."""
        if not self._new:
            return False
        for committed in reader.committed([TopicPartition(*key) for key in sorted(self._new)], timeout=ASK_S):
            key = (committed.topic, committed.partition)
            pending = self.pending.setdefault(key, Pending())
            pending.in_flight = self._range_in_flight(reader, committed) if self._sink.keeps_ranges else None
            pending.retried = pending.in_flight is not None
            if committed.offset >= 0 and pending.messages and (first := pending.messages[0].offset()) is not None:
                self._next_offset[key] = committed.offset
                self._count_gap(key, first)
                self._next_offset[key] = (pending.messages[-1].offset() or 0) + 1
            elif committed.offset >= 0:
                self._next_offset[key] = committed.offset
            self._new.discard(key)
        return True

    def due(self, flush_s: float, flush_bytes: int) -> list[Partition]:
        """Returns partitions with a range to write now, topics in the sink's order."""
        due = [key for key, p in self.pending.items() if key not in self._new and p.due(flush_s, flush_bytes)]
        return sorted(due, key=lambda key: (self._sink.topics.index(key[0]), key[1]))

    def lag(self, reader: Consumer, key: Partition) -> int:
        """Returns the messages of a partition that are not read yet, as far as is known here."""
        _, high = reader.get_watermark_offsets(TopicPartition(*key), cached=True)
        return max(high - self._next_offset.get(key, high), 0)

    def _count_gap(self, key: Partition, offset: int) -> None:
        missing = offset - self._next_offset.get(key, offset)
        if missing > 0:
            metrics.GAPS.labels(self._sink.name, key[0]).inc(missing)
            log.error("%s: Kafka dropped %d unread messages of %s/%d", self._sink.name, missing, *key)
        self._next_offset[key] = offset + 1

    def _range_in_flight(self, reader: Consumer, committed: TopicPartition) -> InFlight | None:
        """Returns the range in flight, unless Kafka has deleted its messages."""
        in_flight = InFlight.parse(committed.metadata)
        if in_flight is None:
            return None
        low, high = reader.get_watermark_offsets(committed, timeout=ASK_S)
        if low <= in_flight.last < high:
            return in_flight
        log.error(
            "%s: Kafka no longer has the messages of %s of %s/%d, which may not be written completely",
            self._sink.name, in_flight, committed.topic, committed.partition,
        )  # fmt: skip
        return None
