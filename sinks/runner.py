"""The consumer loop of a sink: ranges of messages by time and size, written, then committed.

A sink decodes messages and writes ranges of them; everything that has to do with Kafka is here. When the store does not
take a range it is tried again with growing pauses, without reading on and without leaving the group, until it does.
"""

import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from icestream.kafka import consumer
from icestream.settings import KafkaSettings
from sinks import metrics
from sinks.migrate import MigrationError
from sinks.pending import Pending
from sinks.ranges import InFlight, Range
from sinks.tables.arrow import BadMessage

log = logging.getLogger(__name__)

Partition = tuple[str, int]
Reject = Callable[[Message, Exception], None]
"""Puts a message that cannot be stored elsewhere; returns when it is there. May raise, and is called again then."""

_POLL_S = 0.1
_ASK_S = 10.0
_BACK_OFF_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_MAX_HELD_BYTES = 64_000_000


class Sink(Protocol):
    """What a sink is to its loop; all called from the loop's thread."""

    name: str
    group: str
    topics: tuple[str, ...]
    keeps_ranges: bool
    """Whether a range that was begun must be written again as it was (else: the sink knows what it has)."""

    def check(self) -> None:
        """Raises where the store is not what the sink needs."""

    def decode(self, message: Message, cluster: str) -> Any:
        """Raises BadMessage."""

    def write(self, message_range: Range[Any]) -> None:
        """Stores what of the range is not stored yet; whatever it raises, it is called again with the same range."""

    def failed(self) -> None:
        """`write` or `idle` raised: gives up connections that may be in no good state."""

    def idle(self) -> None:
        """Work of its own, if any, between ranges; called often. What it raises is logged."""

    def close(self) -> None: ...


class _Lost(Exception):
    """The partition is somebody else's now, or we are to stop: its range stays as it is, in flight."""


class Runner:
    """Runs one sink until `stop` is set."""

    def __init__(
        self,
        sink: Sink,
        settings: KafkaSettings,
        reject: Reject,
        stop: threading.Event,
        flush_s: float = 1.0,
        flush_bytes: int = 16_000_000,
    ) -> None:
        self.sink = sink
        self._settings = settings
        self._reject = reject
        self._stop = stop
        self._flush_s = flush_s
        self._flush_bytes = flush_bytes
        self._pending: dict[Partition, Pending] = {}
        self._new: set[Partition] = set()  # assigned, not yet known whether something is in flight
        self._next: dict[Partition, int] = {}
        self._cluster = ""
        self.problem: str | None = "has not reached Kafka yet"
        """Why it cannot do its work now; None when it can."""

    def run(self) -> None:
        """Blocks until stopped. Raises MigrationError."""
        if not self._checked():
            return
        reader = consumer(self._settings, self.sink.group)
        try:
            if not self._connect(reader):
                return
            reader.subscribe(
                list(self.sink.topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
            )
            while not self._stop.is_set():
                self._read(reader)
                self._learn(reader)
                self._flush(reader, self._flush_s)
                self._idle()
            self._flush(reader, 0.0)
        finally:
            reader.close()
            self.sink.close()

    def _checked(self) -> bool:
        """Waits for a store that is not there yet; False when stopped before."""
        while not self._stop.is_set():
            try:
                self.sink.check()
                return True
            except MigrationError:
                raise
            except Exception as error:
                self.sink.failed()
                self.problem = f"the store cannot be reached: {error}"
                log.warning("%s: %s", self.sink.name, self.problem)
                self._stop.wait(2)
        return False

    def _idle(self) -> None:
        try:
            self.sink.idle()
        except Exception as error:  # it is tried again; the topics go on
            self.sink.failed()
            metrics.FAILURES.labels(self.sink.name).inc()
            log.error("%s: %s", self.sink.name, error)
            self._stop.wait(1)

    def _connect(self, reader: Consumer) -> bool:
        """Waits for the cluster's ID; False when stopped before."""
        while not self._stop.is_set():
            try:
                self._cluster = str(reader.list_topics(timeout=2).cluster_id)
            except KafkaException as error:
                self.problem = f"Kafka at {self._settings.kafka}: {error.args[0].str()}"
                log.warning("%s: %s", self.sink.name, self.problem)
                self._stop.wait(1)
            else:
                self.problem = None
                return True
        return False

    def _assigned(self, reader: Consumer, partitions: list[TopicPartition]) -> None:
        for p in partitions:
            self._new.add((p.topic, p.partition))

    def _revoked(self, reader: Consumer, partitions: list[TopicPartition]) -> None:
        """What was read and not written is the next owner's."""
        for p in partitions:
            key = (p.topic, p.partition)
            self._new.discard(key)
            self._pending.pop(key, None)
            self._next.pop(key, None)
            with contextlib.suppress(KeyError):
                metrics.LAG.remove(self.sink.name, p.topic, str(p.partition))

    def _read(self, reader: Consumer) -> None:
        for message in reader.consume(500, timeout=_POLL_S):
            if (error := message.error()) is not None:
                self._complain(error)
                continue
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            key = (topic, partition)
            if key not in self._pending:
                self._pending[key] = Pending()
            self._count_gap(key, offset)
            self._pending[key].add(message)
            metrics.MESSAGES.labels(self.sink.name, topic).inc()
            metrics.BYTES.labels(self.sink.name, topic).inc(len(message.value() or b""))

    def _complain(self, error: KafkaError) -> None:
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            self.problem = f"{error.str()}: run `icestream topics create`"
        log.warning("%s: %s", self.sink.name, error.str())

    def _count_gap(self, key: Partition, offset: int) -> None:
        missing = offset - self._next.get(key, offset)
        if missing > 0:
            metrics.GAPS.labels(self.sink.name, key[0]).inc(missing)
            log.error("%s: Kafka dropped %d unread messages of %s/%d", self.sink.name, missing, *key)
        self._next[key] = offset + 1

    def _learn(self, reader: Consumer) -> None:
        """Asks what is in flight on partitions that are new here."""
        if not self._new:
            return
        asked = [TopicPartition(*key) for key in sorted(self._new)]
        try:
            for p in reader.committed(asked, timeout=_ASK_S):
                key = (p.topic, p.partition)
                pending = self._pending.setdefault(key, Pending())
                pending.in_flight = self._reachable(reader, p) if self.sink.keeps_ranges else None
                pending.again = pending.in_flight is not None
                if p.offset >= 0 and pending.messages and (first := pending.messages[0].offset()) is not None:
                    self._next[key] = p.offset
                    self._count_gap(key, first)
                    self._next[key] = (pending.messages[-1].offset() or 0) + 1
                elif p.offset >= 0:
                    self._next[key] = p.offset
                self._new.discard(key)
            self.problem = None
        except KafkaException as error:
            log.warning("%s: cannot read committed offsets: %s", self.sink.name, error.args[0].str())

    def _reachable(self, reader: Consumer, committed: TopicPartition) -> InFlight | None:
        """The range in flight, unless its messages are gone."""
        in_flight = InFlight.parse(committed.metadata)
        if in_flight is None:
            return None
        low, high = reader.get_watermark_offsets(committed, timeout=_ASK_S)
        if low <= in_flight.last < high:
            return in_flight
        log.error("%s: messages in flight are gone from %s/%d: %s", self.sink.name, committed.topic,
                  committed.partition, in_flight)  # fmt: skip
        return None

    def _flush(self, reader: Consumer, flush_s: float) -> None:
        """Writes and commits every range that is due, topics in the sink's order."""
        held = sum(pending.size for pending in self._pending.values())
        flush_s = 0.0 if held >= _MAX_HELD_BYTES else flush_s
        due = [k for k, p in self._pending.items() if k not in self._new and p.due(flush_s, self._flush_bytes)]
        due.sort(key=lambda key: (self.sink.topics.index(key[0]), key[1]))
        ranges = {key: self._pending[key].next() for key in due}
        if self.sink.keeps_ranges and not self._commit(
            reader,
            [TopicPartition(*key, offsets.first, metadata=str(offsets)) for key, (offsets, _) in ranges.items()
             if not self._pending[key].again],
        ):  # fmt: skip
            return
        for key, (offsets, messages) in ranges.items():
            if key not in self._pending:  # lost while another range was waiting for the store
                continue
            try:
                decoded = self._write(reader, key, offsets, messages)
            except _Lost:
                continue
            if self._commit(reader, [TopicPartition(*key, offsets.last + 1)]):
                self._observe(reader, key, decoded)
            if key in self._pending:
                self._pending[key].written(offsets)

    def _commit(self, reader: Consumer, offsets: list[TopicPartition]) -> bool:
        """False where the group did not take it: the partitions are about to be somebody else's."""
        if not offsets:
            return True
        try:
            results = reader.commit(offsets=offsets, asynchronous=False) or []
        except KafkaException as error:
            log.warning("%s: commit failed: %s", self.sink.name, error.args[0].str())
            return False
        return all(result.error is None for result in results)

    def _write(self, reader: Consumer, key: Partition, offsets: InFlight, messages: list[Message]) -> list[Any]:
        """Decodes and writes a range, however often it takes; returns the decoded messages. Raises _Lost."""
        for attempt in itertools.count():
            started = time.monotonic()
            try:
                decoded = self._decode(messages)
                again, self._pending[key].again = self._pending[key].again, True
                self.sink.write(Range(self._cluster, *key, offsets, decoded, again))
            except Exception as error:
                # Whatever it is, going on would lose the range and ending would lose the other partitions' time.
                self.sink.failed()
                metrics.FAILURES.labels(self.sink.name).inc()
                self.problem = f"the store does not take data: {error}"
                log.error("%s: %s/%d not written, will try again: %s", self.sink.name, *key, error)
                self._pause(reader, key, _BACK_OFF_S[min(attempt, len(_BACK_OFF_S) - 1)])
            else:
                if attempt:
                    self._resume(reader)
                metrics.WRITE_SECONDS.labels(self.sink.name).observe(time.monotonic() - started)
                return decoded
        raise AssertionError("unreachable")

    def _decode(self, messages: list[Message]) -> list[Any]:
        decoded = []
        for message in messages:
            try:
                decoded.append(self.sink.decode(message, self._cluster))
            except BadMessage as error:
                metrics.DEAD_LETTERS.labels(self.sink.name, message.topic() or "").inc()
                self._reject(message, error)
        return decoded

    def _pause(self, reader: Consumer, key: Partition, seconds: float) -> None:
        """Waits while staying in the group. Raises _Lost when there is nothing to wait for any more."""
        metrics.WAITING.labels(self.sink.name).set(1)
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            reader.pause(reader.assignment())
            message = reader.poll(min(left, 0.2))
            if message is not None and message.error() is None:  # of a partition assigned in this moment: read later
                reader.seek(TopicPartition(message.topic() or "", message.partition() or 0, message.offset() or 0))
            if self._stop.is_set() or key not in self._pending:
                raise _Lost

    def _resume(self, reader: Consumer) -> None:
        metrics.WAITING.labels(self.sink.name).set(0)
        self.problem = None
        reader.resume(reader.assignment())
        log.info("%s: the store takes data again", self.sink.name)

    def _observe(self, reader: Consumer, key: Partition, decoded: list[Any]) -> None:
        now = time.time_ns()
        freshness = metrics.FRESHNESS.labels(self.sink.name, key[0])
        for message in decoded:
            if published := getattr(message, "published_unix_nano", 0):
                freshness.observe(max(now - published, 0) / 1e9)
        _, high = reader.get_watermark_offsets(TopicPartition(*key), cached=True)
        metrics.LAG.labels(self.sink.name, *key).set(max(high - self._next.get(key, high), 0))
