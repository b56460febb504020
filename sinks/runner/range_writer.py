"""Writes the ranges of a sink's partitions that are due, and commits them."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from icestream.kafka.clients import commit
from icestream.kafka.dead_letters import reason
from icestream.kafka.readiness import Partition
from icestream.messages.checks import BadMessage
from sinks import metrics
from sinks.clickhouse.disk_room import DiskRoom
from sinks.runner.assignment import Assignment
from sinks.runner.pending import Decoded, Pending
from sinks.runner.ranges import MessageRange
from sinks.runner.refused import MAX_REFUSED_PER_HOUR, refused
from sinks.runner.try_out import NotToBlame
from sinks.sink import Sink

log = logging.getLogger(__name__)

TRY_OUT_AFTER = 5
"""After this many failed attempts to write a range alone, the store is asked which messages it refuses."""

Rejected = tuple[Message, Exception]
"""A bad message, and what is wrong with it."""
Reject = Callable[[Sequence[Rejected]], None]
"""Sends messages to the dead letters and returns when they are there. If it raises, it is called again."""


class RangeWriter:
    """Used by one thread."""

    def __init__(
        self, sink: Sink, assignment: Assignment, reject: Reject, cluster: str, flush_bytes: int, room: DiskRoom
    ) -> None:
        self._sink = sink
        self._assignment = assignment
        self._reject = reject
        self._cluster = cluster
        self._flush_bytes = flush_bytes
        self._room = room
        self._most_again = 1  # ranges of a group of which each failed before
        self._left_out: deque[float] = deque()  # when the store refused a message, in the last hour

    def flush(self, reader: Consumer, flush_s: float) -> None:
        """Writes and commits every range whose messages have waited for `flush_s`, or that is large, until none is due.

        If the store does not take a range, the others wait for the next call, so that the caller stays in the group;
        they are tried first then. So is a commit that failed after a range was written: there may never be another one.
        """
        self._commit_stored(reader, self._assignment.uncommitted())
        while self._write_due(reader, flush_s):
            pass

    def _write_due(self, reader: Consumer, flush_s: float) -> bool:
        """Writes one range of each partition that is due; returns False if there was none, or one was not written."""
        due = self._assignment.due(flush_s, self._flush_bytes)
        if not due or not self._begin(reader, due):
            return False
        written = all(self._write(reader, keys) for keys in self._groups(due))
        metrics.WAITING.labels(self._sink.name).set(self._assignment.failure is not None)
        return written

    def _begin(self, reader: Consumer, keys: list[Partition]) -> bool:
        """Begins ranges of up to `flush_bytes`, and names them in Kafka before the first attempt to write them."""
        pending = {key: self._assignment.pending[key] for key in keys}
        new = {key: p.next(self._flush_bytes) for key, p in pending.items() if not p.retried}
        if not self._sink.keeps_ranges:
            return True
        return self._commit(
            reader,
            [TopicPartition(*key, of.first, metadata=str(pending[key].commit_note())) for key, of in new.items()],
        )

    def _commit(self, reader: Consumer, offsets: list[TopicPartition]) -> bool:
        """Returns False where the group did not take the offsets, or Kafka did not answer."""
        if not offsets:
            return True
        try:
            results = commit(reader, offsets)
        except KafkaException as error:
            log.warning("%s: commit failed: %s", self._sink.name, error.args[0].str())
            return False
        refused = [result for result in results if result.error is not None]
        if refused:
            log.warning("%s: commit failed: %s", self._sink.name, refused[0].error)
        for result in results:
            if result.error is None:
                self._assignment.pending[result.topic, result.partition].uncommitted = False
        return not refused

    def _commit_stored(self, reader: Consumer, keys: Iterable[Partition]) -> bool:
        """Commits where the stored ranges of partitions end."""
        pending = {key: self._assignment.pending[key] for key in keys}
        return self._commit(
            reader,
            [TopicPartition(*key, p.marks[0].offset + 1, metadata=str(p.stored())) for key, p in pending.items()],
        )

    def _groups(self, due: list[Partition]) -> Iterator[list[Partition]]:
        """Yields the partitions in groups, each of which is written at once: up to `flush_bytes`, or one range.

        Ranges that failed before are written without the others, in groups that shrink at each failure. So in the end
        a range that the store refuses is alone, and all others are written.
        """
        group: list[Partition] = []
        size, failed = 0, False
        for key in due:
            pending = self._assignment.pending[key]
            range_size, again = pending.range_size(), pending.problem is not None
            most = 1 if not self._sink.writes_together else self._most_again if again else len(due)
            if group and (again != failed or len(group) >= most or size + range_size > self._flush_bytes):
                yield group
                group, size = [], 0
            group.append(key)
            size, failed = size + range_size, again
        yield group

    def _write(self, reader: Consumer, keys: list[Partition]) -> bool:
        """Writes ranges and commits them; returns False if the store did not take them."""
        pending = {key: self._assignment.pending[key] for key in keys}
        started = time.monotonic()
        try:
            self._room.check()
        except OSError as error:
            self._failed(pending, str(error))
            return False
        for key, p in pending.items():
            try:
                p.decoded = self._decode(p.in_range()) if p.decoded is None else p.decoded
            except Exception as error:
                self._failed({key: p}, f"dead letters cannot be sent: {error}")
                return False
        ranges = [
            MessageRange(self._cluster, *key, p.next(), [d.content for d in p.decoded or []], p.retried)
            for key, p in pending.items()
        ]
        again = any(p.problem is not None for p in pending.values())
        for p in pending.values():
            p.retried = True
        try:
            self._sink.write(*ranges)
        except BaseException as error:  # a panic of a Rust library is no Exception
            # Whatever the error is: continuing would lose the ranges, and ending would stop the other partitions.
            self._sink.failed()
            self._failed(pending, f"the store does not take data: {error}")
            self._most_again = max(len(keys) // 2, 1)
            if len(keys) == 1:
                self._leave_refused_out(keys[0])
            return False
        if again:
            self._most_again *= 2
            log.info("%s: the store takes %s again", self._sink.name, _named(keys))
        metrics.WRITE_SECONDS.labels(self._sink.name).observe(time.monotonic() - started)
        for p in pending.values():
            p.written()
        if self._commit_stored(reader, pending):
            for message_range in ranges:
                self._observe(message_range)
        return True

    def _failed(self, pending: dict[Partition, Pending], problem: str) -> None:
        metrics.FAILURES.labels(self._sink.name).inc()
        for p in pending.values():
            p.failed(problem)
        log.error("%s: cannot write %s, will try again: %s", self._sink.name, _named(list(pending)), problem)

    def _leave_refused_out(self, key: Partition) -> None:
        """Makes the messages of a range that the store refuses for what they hold dead letters, and leaves them out.

        The range keeps its name. So if an attempt has stored rows of it, or still does, no rows of it are stored again;
        and another owner, which tries with all messages first, cannot store any twice either (see
        sinks/runner/refused.py).
        """
        p = self._assignment.pending[key]
        if p.failures < TRY_OUT_AFTER or not p.decoded:
            return
        try:
            found = refused(self._sink, [one.content for one in p.decoded])
            self._allow(len(found))
            bad = [(p.decoded[row].message, error) for row, error in found.items()]
            if bad:
                self._reject(bad)
        except BaseException as error:  # as in _write
            self._sink.failed()
            log.warning("%s: cannot tell which messages of %s are refused: %s", self._sink.name, _named([key]), error)
            return
        p.decoded = [one for row, one in enumerate(p.decoded) if row not in found]
        self._count(bad)

    def _allow(self, refused: int) -> None:
        """Notes that messages are left out. Raises NotToBlame if they are too many: the tables are at fault then."""
        now = time.monotonic()
        while self._left_out and now - self._left_out[0] > 3600:
            self._left_out.popleft()
        if len(self._left_out) + refused > MAX_REFUSED_PER_HOUR:
            raise NotToBlame(f"the store has refused more than {MAX_REFUSED_PER_HOUR} messages in an hour")
        self._left_out.extend([now] * refused)

    def _decode(self, messages: list[Message]) -> list[Decoded]:
        """Returns the good messages, after the bad ones are among the dead letters."""
        decoded: list[Decoded] = []
        bad: list[Rejected] = []
        for message in messages:
            try:
                decoded.append(Decoded(message, self._sink.decode(message, self._cluster)))
            except MemoryError:
                raise
            except Exception as error:
                # Decoding uses nothing but the message: whatever it raises, it would raise again.
                if not isinstance(error, BadMessage):
                    log.exception("%s: a message that can be decoded cannot be stored", self._sink.name)
                bad.append((message, error))
        if bad:
            self._reject(bad)
        self._count(bad)
        return decoded

    def _count(self, dead_letters: Sequence[Rejected]) -> None:
        for message, problem in dead_letters:
            metrics.DEAD_LETTERS.labels(self._sink.name, message.topic() or "", reason(problem)).inc()

    def _observe(self, message_range: MessageRange[Any]) -> None:
        now = time.time_ns()
        freshness = metrics.FRESHNESS.labels(self._sink.name, message_range.topic)
        for message in message_range.messages:
            if published := getattr(message, "published_unix_nano", 0):
                freshness.observe(max(now - published, 0) / 1e9)


def _named(keys: list[Partition]) -> str:
    more = f" and {len(keys) - 3} more partitions" if len(keys) > 3 else ""
    return ", ".join(f"{topic}/{number}" for topic, number in keys[:3]) + more
