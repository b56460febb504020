"""The partitions that are assigned to a sink, and the messages that it has read but not written."""

import contextlib
import logging
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from icestream.kafka.clients import commit, committed_positions, unread
from icestream.kafka.log_mark import LogMark, absent
from icestream.kafka.readiness import GroupOffsets, Partition, Standstills
from icestream.settings import KafkaSettings
from sinks import metrics
from sinks.runner.doubt import Doubt
from sinks.runner.pending import Pending
from sinks.runner.ranges import CommitNote, InFlight
from sinks.sink import Sink

log = logging.getLogger(__name__)

ASK_S = 10.0
"""How long Kafka has to answer a question about offsets."""
MAX_HELD_BYTES = 64_000_000
"""A sink that holds this many unwritten bytes reads nothing more."""
RANGES_PER_S = 12
"""How many ranges a sink writes a second, unless they are large."""
_NOTHING = Pending()
_MANY_POLLS = 20
"""A consumer that was asked so often for messages would have given what waits."""


class Assignment:
    """Partitions, from `assigned` to `revoked`, with the messages that are not written yet."""

    def __init__(self, sink: Sink) -> None:
        self.pending: dict[Partition, Pending] = {}
        self.needs_consumer = False
        """Whether a log was found to be another one, or messages wait that the consumer does not give, since this was
        set to False."""
        self._polls = 0
        self._waited: set[tuple[Partition, int]] = set()  # where messages waited at the last check
        self._sink = sink
        self._new: set[Partition] = set()  # it is not known yet whether a range of them is in flight
        self._doubts: dict[Partition, Doubt] = {}
        self._next_offset: dict[Partition, int] = {}
        self._last: dict[Partition, LogMark] = {}  # of the last message that was read
        self._checked: dict[Partition, LogMark] = {}  # of one before, up to which the log is known to be the same
        self._changed: set[Partition] = set()  # their logs, as another thread has found
        self._paused: set[Partition] = set()
        self._assigned: set[Partition] = set()
        for topic in sink.topics:  # a series that begins above 0 would not count as an increase
            metrics.GAPS.labels(sink.name, topic)
            metrics.LOGS_CHANGED.labels(sink.name, topic)

    @property
    def failure(self) -> str | None:
        """Why a range could not be written; None if all could."""
        return next((p.problem for p in list(self.pending.values()) if p.problem), None)

    def read_to(self) -> dict[Partition, int]:
        """Returns the assigned partitions, and the offset that each reads next; -1 where that is not known."""
        return {key: self._next_offset.get(key, -1) for key in self._assigned.copy()}

    def assigned(self, reader: Consumer, partitions: list[TopicPartition]) -> None:
        """A callback of `Consumer.subscribe`."""
        for p in partitions:
            self._new.add((p.topic, p.partition))
            self._assigned.add((p.topic, p.partition))

    def revoked(self, reader: Consumer, partitions: list[TopicPartition]) -> None:
        """A callback of `Consumer.subscribe`: drops what was read, which the next owner reads again."""
        with contextlib.suppress(KafkaException):
            reader.resume(partitions)  # a pause would outlive the assignment
        for p in partitions:
            key = (p.topic, p.partition)
            self._paused.discard(key)
            self._new.discard(key)
            self._doubts.pop(key, None)
            self._assigned.discard(key)
            self.pending.pop(key, None)
            self._next_offset.pop(key, None)
            self._last.pop(key, None)
            self._checked.pop(key, None)
            with contextlib.suppress(KeyError):
                metrics.LAG.remove(self._sink.name, p.topic, str(p.partition))

    def hold_back(self, reader: Consumer) -> None:
        """Pauses the partitions whose ranges the store does not take, or all when too much is held; resumes others."""
        self._polls += 1
        full = sum(p.size for p in self.pending.values()) >= MAX_HELD_BYTES
        partitions = {(p.topic, p.partition): p for p in reader.assignment()}
        pause = {key for key in partitions if self.pending.get(key, _NOTHING).must_wait(full)} - self._doubts.keys()
        if wrong := [partitions[key] for key in pause - self._paused]:
            reader.pause(wrong)
        if wrong := [partitions[key] for key in (self._paused & partitions.keys()) - pause]:
            reader.resume(wrong)
        self._paused = pause

    def add(self, reader: Consumer, message: Message) -> None:
        """Keeps a message until it is written."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        key = (topic, partition)
        if (doubt := self._doubts.get(key)) is not None:
            if doubt.looks:
                doubt.compare(message)
            return
        if key not in self.pending:
            self.pending[key] = Pending()
        if key in self._checked and offset < self._next_offset[key]:
            self._doubt_since_checked(key)
            return
        self._count_gap(reader, key, offset)
        self.pending[key].add(message)
        self._last[key] = LogMark.from_message(message)
        self._checked.setdefault(key, self._last[key])

    def doubt(self) -> None:
        """Doubts that the logs are still those that were read. What was read and not added comes again."""
        for key in self._assigned - self._new:
            pending = self.pending.get(key, _NOTHING)
            read = pending.messages[-1:]
            marks = (*map(LogMark.from_message, read), *pending.marks)
            if key in self._doubts:
                self._doubts[key].looks = False
            elif marks:
                self._doubts[key] = Doubt(marks, marks[0].offset + 1, pending)
            else:
                self._new.add(key)

    def check_logs(self, settings: KafkaSettings) -> None:
        """Looks whether the logs are still those that were read at the last check. GroupWatch calls it, in its thread.
        Raises KafkaException."""
        last, marks = dict(self._last), dict(self._checked)
        changed = absent(settings, marks) if marks else set()
        self._checked.update({key: last[key] for key in marks.keys() - changed if key in self._checked and key in last})
        self._changed |= changed

    def check_reading(self, settings: KafkaSettings, lags: Mapping[Partition, int]) -> None:
        """Looks whether messages wait where they did at the last check, though the consumer was polled many times.
        GroupWatch calls it, in its thread. Raises KafkaException."""
        polls, self._polls = self._polls, 0
        reads = {key: offset for key, offset in self._next_offset.copy().items() if lags.get(key)}
        places = [TopicPartition(*key, reads[key]) for key in reads.keys() - self._paused - self._doubts.copy().keys()]
        waiting = {((p.topic, p.partition), p.offset) for p in unread(settings, places)} if places else set()
        if polls > _MANY_POLLS and (silent := waiting & self._waited):
            log.error("%s: the consumer does not give the messages of %s", self._sink.name, sorted(silent))
            self.needs_consumer = True
        self._waited = waiting

    def _doubt_since_checked(self, key: Partition) -> None:
        pending, checked = self.pending.setdefault(key, Pending()), self._checked.get(key)
        if key not in self._doubts and checked is not None:
            before = [mark for mark in pending.marks if mark.offset < checked.offset]  # later ones are of the new log
            self._doubts[key] = Doubt((checked, *before), self._next_offset[key], pending)

    def look(self, reader: Consumer) -> bool:
        """Asks Kafka for the commits of new partitions, and looks at the logs that are in doubt; False where there is
        neither. Raises KafkaException; then it is to be called again."""
        while self._changed:
            if (key := self._changed.pop()) in self._assigned - self._new:
                self._doubt_since_checked(key)
        if not self._new and all(doubt.looks or doubt.writes for doubt in self._doubts.values()):
            return False
        for position in committed_positions(reader, [TopicPartition(*key) for key in sorted(self._new)], ASK_S):
            self._take_commit(reader, position)
        for key, doubt in list(self._doubts.items()):
            if not doubt.looks and not doubt.writes:
                self._go_to_next(reader, key, doubt)
        return True

    def _take_commit(self, reader: Consumer, position: TopicPartition) -> None:
        key = (position.topic, position.partition)
        note = CommitNote.parse(position.metadata)
        in_flight = self._range_in_flight(reader, position) if self._sink.keeps_ranges else None
        stored = note.marks[1:] if note.in_flight else note.marks
        pending = Pending(in_flight, retried=in_flight is not None, marks=stored)
        self._doubts[key] = Doubt(note.marks, position.offset, pending)
        self._new.discard(key)

    def _go_to_next(self, reader: Consumer, key: Partition, doubt: Doubt) -> None:
        """Goes to the message that a doubt looks for; where nothing is left to look for, the doubt is over."""
        low, high = reader.get_watermark_offsets(TopicPartition(*key), timeout=ASK_S)
        offset = doubt.next_offset(low, high)
        if doubt.writes:
            doubt.looks = False
            return
        reader.seek(TopicPartition(*key, offset))
        if doubt.looks:
            return
        if doubt.changed:  # what was committed is of no use, and lag would be told from it
            doubt.pending = Pending(marks=doubt.found)
            place = TopicPartition(*key, offset, metadata=str(doubt.pending.stored()))
            commit(reader, [place])
        self.pending[key] = doubt.pending
        self._last.pop(key, None)
        self._checked.pop(key, None)
        if doubt.found:
            self._checked[key] = doubt.found[0]
        # A group that has committed nothing misses nothing.
        self._next_offset[key] = offset if doubt.changed or doubt.goes_on_at < 0 else doubt.goes_on_at
        del self._doubts[key]
        if doubt.changed:
            self.needs_consumer = True
            metrics.LOGS_CHANGED.labels(self._sink.name, key[0]).inc()
            log.error(
                "%s: %s/%d was made anew, or Kafka has lost messages of it: reads it again from offset %d on",
                self._sink.name, *key, offset,
            )  # fmt: skip

    def due(self, flush_s: float, flush_bytes: int) -> list[Partition]:
        """Returns partitions with a range to write now: first those that did not fail, topics in the sink's order.

        A sink with many partitions collects messages for longer than `flush_s`, because a store bears few inserts a
        second, but large ones; a sink that writes ranges together does not. It writes everything at once when it holds
        too much, or when `flush_s` is 0.
        """
        held = sum(p.size for p in self.pending.values())
        waiting = 0 if self._sink.writes_together else sum(bool(p.messages) for p in self.pending.values())
        at_once = flush_s == 0 or held >= MAX_HELD_BYTES
        wait_s = 0.0 if at_once else max(flush_s, waiting / RANGES_PER_S)
        known = self._known()
        due = [key for key, p in known.items() if p.due(wait_s, flush_bytes)]
        if self._sink.writes_together and any(known[key].problem is None for key in due):
            due = [key for key, p in known.items() if key in due or (p.problem is None and p.due(0.0, flush_bytes))]
        order = self._sink.topics.index
        return sorted(due, key=lambda key: (self.pending[key].problem is not None, order(key[0]), key[1]))

    def uncommitted(self) -> list[Partition]:
        """Returns the partitions of which the group does not know yet what is stored."""
        return [key for key, p in self._known().items() if p.uncommitted]

    def note_lags(self, offsets: GroupOffsets, _: Standstills) -> None:
        """Sets the lag of the partitions here. GroupWatch calls it, in its thread."""
        for key in self._assigned.copy():
            if key in offsets.lags:  # else it is not known now
                metrics.LAG.labels(self._sink.name, *key).set(offsets.lags[key])

    def _known(self) -> dict[Partition, Pending]:
        """Returns the partitions of which something may be written and committed: their commits are known, and their
        logs are not in doubt, or known to be others than what was read."""
        doubts = {key for key, doubt in self._doubts.items() if not doubt.writes}
        return {key: p for key, p in self.pending.items() if key not in self._new and key not in doubts}

    def _count_gap(self, reader: Consumer, key: Partition, offset: int) -> None:
        expected = self._next_offset.get(key, offset)
        # Other offsets without a message are ends of transactions, or messages of transactions that were aborted.
        deleted_to, _ = reader.get_watermark_offsets(TopicPartition(*key), cached=True)
        missing = min(deleted_to, offset) - expected
        if missing > 0:
            metrics.GAPS.labels(self._sink.name, key[0]).inc(missing)
            log.error("%s: Kafka dropped %d unread messages of %s/%d", self._sink.name, missing, *key)
        self._next_offset[key] = offset + 1

    def _range_in_flight(self, reader: Consumer, committed: TopicPartition) -> InFlight | None:
        """Returns the range in flight, unless Kafka has deleted its messages."""
        in_flight = CommitNote.parse(committed.metadata).in_flight
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
