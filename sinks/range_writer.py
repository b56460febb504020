"""Writes the ranges of a sink's partitions that are due, and commits them."""

import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from icestream.messages.checks import BadMessage
from sinks import metrics
from sinks.assignment import Assignment, Partition
from sinks.ranges import InFlight, MessageRange
from sinks.sink import Sink

log = logging.getLogger(__name__)

Reject = Callable[[Message, Exception], None]
"""Sends a message to the dead letters and returns when it is there. If it raises, it is called again."""

_BACK_OFF_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_MAX_HELD_BYTES = 64_000_000


class _GaveUp(Exception):
    """The partition was revoked, or the sink is to stop: its range stays in flight."""


class RangeWriter:
    """Used by one thread."""

    def __init__(
        self, sink: Sink, assignment: Assignment, reject: Reject, cluster: str, stop: threading.Event, flush_bytes: int
    ) -> None:
        self.problem: str | None = None
        """Why the store does not take data now; None when it does."""
        self._sink = sink
        self._assignment = assignment
        self._reject = reject
        self._cluster = cluster
        self._stop = stop
        self._flush_bytes = flush_bytes

    def flush(self, reader: Consumer, flush_s: float) -> None:
        """Writes and commits every range whose messages have waited for `flush_s`, or that is large."""
        pending = self._assignment.pending
        held = sum(partition.size for partition in pending.values())
        due = self._assignment.due(0.0 if held >= _MAX_HELD_BYTES else flush_s, self._flush_bytes)
        ranges = {key: pending[key].next() for key in due}
        begun = [
            TopicPartition(*key, offsets.first, metadata=str(offsets))
            for key, (offsets, _) in ranges.items()
            if not pending[key].retried
        ]
        if self._sink.keeps_ranges and not self._commit(reader, begun):
            return
        for key, (offsets, messages) in ranges.items():
            if key not in pending:  # revoked while another range was waiting for the store
                continue
            try:
                decoded = self._write(reader, key, offsets, messages)
            except _GaveUp:
                continue
            if self._commit(reader, [TopicPartition(*key, offsets.last + 1)]):
                self._observe(reader, key, decoded)
            if key in pending:
                pending[key].written(offsets)

    def _commit(self, reader: Consumer, offsets: list[TopicPartition]) -> bool:
        """Returns False where the group did not take the offsets: the partitions are about to be reassigned."""
        if not offsets:
            return True
        try:
            results = reader.commit(offsets=offsets, asynchronous=False) or []
        except KafkaException as error:
            log.warning("%s: commit failed: %s", self._sink.name, error.args[0].str())
            return False
        return all(result.error is None for result in results)

    def _write(self, reader: Consumer, key: Partition, offsets: InFlight, messages: list[Message]) -> list[Any]:
        """Decodes and writes a range, in as many attempts as it takes; returns the decoded messages. Raises _GaveUp."""
        for attempt in itertools.count():
            started = time.monotonic()
            try:
                decoded = self._decode(messages)
                retried, self._assignment.pending[key].retried = self._assignment.pending[key].retried, True
                self._sink.write(MessageRange(self._cluster, *key, offsets, decoded, retried))
            except Exception as error:
                # Whatever the error is: continuing would lose the range, and ending would stop the other partitions.
                self._sink.failed()
                metrics.FAILURES.labels(self._sink.name).inc()
                self.problem = f"the store does not take data: {error}"
                log.error("%s: cannot write %s/%d, will try again: %s", self._sink.name, *key, error)
                self._pause(reader, key, _BACK_OFF_S[min(attempt, len(_BACK_OFF_S) - 1)])
            else:
                if attempt:
                    self._resume(reader)
                metrics.WRITE_SECONDS.labels(self._sink.name).observe(time.monotonic() - started)
                return decoded
        raise AssertionError("unreachable")

    def _decode(self, messages: list[Message]) -> list[Any]:
        decoded = []
        for message in messages:
            try:
                decoded.append(self._sink.decode(message, self._cluster))
            except BadMessage as error:
                metrics.DEAD_LETTERS.labels(self._sink.name, message.topic() or "").inc()
                self._reject(message, error)
        return decoded

    def _pause(self, reader: Consumer, key: Partition, seconds: float) -> None:
        """Waits while staying in the group. Raises _GaveUp when there is no reason to wait any more."""
        metrics.WAITING.labels(self._sink.name).set(1)
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            reader.pause(reader.assignment())
            message = reader.poll(min(left, 0.2))
            if message is not None and message.error() is None:  # of a partition that was assigned just now
                reader.seek(TopicPartition(message.topic() or "", message.partition() or 0, message.offset() or 0))
            if self._stop.is_set() or key not in self._assignment.pending:
                raise _GaveUp

    def _resume(self, reader: Consumer) -> None:
        metrics.WAITING.labels(self._sink.name).set(0)
        self.problem = None
        reader.resume(reader.assignment())
        log.info("%s: the store takes data again", self._sink.name)

    def _observe(self, reader: Consumer, key: Partition, decoded: list[Any]) -> None:
        now = time.time_ns()
        freshness = metrics.FRESHNESS.labels(self._sink.name, key[0])
        for message in decoded:
            if published := getattr(message, "published_unix_nano", 0):
                freshness.observe(max(now - published, 0) / 1e9)
        metrics.LAG.labels(self._sink.name, *key).set(self._assignment.lag(reader, key))
