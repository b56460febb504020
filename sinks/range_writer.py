"""Writes the ranges of a sink's partitions that are due, and commits them."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from icestream.dead_letters import reason
from icestream.messages.checks import BadMessage
from sinks import metrics
from sinks.assignment import Assignment, Partition
from sinks.pending import Pending
from sinks.ranges import MessageRange
from sinks.sink import Sink

log = logging.getLogger(__name__)

Rejected = tuple[Message, Exception]
"""A bad message, and what is wrong with it."""
Reject = Callable[[Sequence[Rejected]], None]
"""Sends messages to the dead letters and returns when they are there. If it raises, it is called again."""


class RangeWriter:
    """Used by one thread."""

    def __init__(self, sink: Sink, assignment: Assignment, reject: Reject, cluster: str, flush_bytes: int) -> None:
        self._sink = sink
        self._assignment = assignment
        self._reject = reject
        self._cluster = cluster
        self._flush_bytes = flush_bytes

    def flush(self, reader: Consumer, flush_s: float) -> None:
        """Writes and commits every range whose messages have waited for `flush_s`, or that is large.

        If the store does not take a range, the others wait for the next call, so that the caller stays in the group;
        they are tried first then.
        """
        due = self._assignment.due(flush_s, self._flush_bytes)
        if due and self._begin(reader, due):
            for key in due:
                if not self._write(reader, key):
                    break
            metrics.WAITING.labels(self._sink.name).set(self._assignment.failure is not None)

    def _begin(self, reader: Consumer, keys: list[Partition]) -> bool:
        """Names the ranges in Kafka, before the first attempt to write them."""
        if not self._sink.keeps_ranges:
            return True
        pending = {key: self._assignment.pending[key] for key in keys}
        new = {key: p.next() for key, p in pending.items() if not p.retried}
        return self._commit(
            reader, [TopicPartition(*key, offsets.first, metadata=str(offsets)) for key, offsets in new.items()]
        )

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

    def _write(self, reader: Consumer, key: Partition) -> bool:
        """Writes a range and commits it; returns False if the store did not take it."""
        pending = self._assignment.pending[key]
        started = time.monotonic()
        try:
            if pending.decoded is None:
                pending.decoded = self._decode(pending.in_range())
            retried, pending.retried = pending.retried, True
            self._sink.write(MessageRange(self._cluster, *key, pending.next(), pending.decoded, retried))
        except Exception as error:
            # Whatever the error is: continuing would lose the range, and ending would stop the other partitions.
            self._failed(key, pending, error)
            return False
        if pending.problem is not None:
            log.info("%s: the store takes %s/%d again", self._sink.name, *key)
        metrics.WRITE_SECONDS.labels(self._sink.name).observe(time.monotonic() - started)
        decoded, end = pending.decoded, pending.next().last + 1
        pending.written()
        if self._commit(reader, [TopicPartition(*key, end)]):
            self._observe(key, decoded)
        return True

    def _failed(self, key: Partition, pending: Pending, error: Exception) -> None:
        self._sink.failed()
        metrics.FAILURES.labels(self._sink.name).inc()
        what = "the store does not take data" if pending.decoded is not None else "dead letters cannot be sent"
        pending.failed(f"{what}: {error}")
        log.error("%s: cannot write %s/%d, will try again: %s", self._sink.name, *key, error)

    def _decode(self, messages: list[Message]) -> list[Any]:
        """Returns the good messages, after the bad ones are among the dead letters."""
        decoded: list[Any] = []
        bad: list[Rejected] = []
        for message in messages:
            try:
                decoded.append(self._sink.decode(message, self._cluster))
            except MemoryError:
                raise
            except Exception as error:
                # Decoding uses nothing but the message: whatever it raises, it would raise again.
                if not isinstance(error, BadMessage):
                    log.exception("%s: a message that can be decoded cannot be stored", self._sink.name)
                bad.append((message, error))
        if bad:
            self._reject(bad)
        for message, problem in bad:
            metrics.DEAD_LETTERS.labels(self._sink.name, message.topic() or "", reason(problem)).inc()
        return decoded

    def _observe(self, key: Partition, decoded: list[Any]) -> None:
        now = time.time_ns()
        freshness = metrics.FRESHNESS.labels(self._sink.name, key[0])
        for message in decoded:
            if published := getattr(message, "published_unix_nano", 0):
                freshness.observe(max(now - published, 0) / 1e9)
