"""Recovery: rebuilds the state of a partition from Kafka when a worker takes the partition over.

A partition's outputs depend on the order in which its raw and activity messages were processed. The topic
icestream.samples records that order: every message names its source, and its header `icestream.position` is the
`Position` after it. A worker that takes over a partition reads the end of that topic. Then it processes once more, in
the same order and with the same checks, the raw and activity messages that the state needs, without publishing their
samples. So it again remembers the samples without a context, late activity corrects each of them exactly once, and
batches that collectors send again are recognised.

There are two limits:
- Recovery leaves out raw messages beyond MAX_RAW or TAIL, and those that were joined with activity that it leaves out.
  Late activity does not correct their samples, which stay as they are.
- A repeated raw batch is recognised only if the first one is among the last TAIL offsets of icestream.samples, or
  among the raw messages that are processed again. Otherwise both are published with the same batch ID, and sinks skip
  the second. Activity that comes later or again then corrects samples that the first one gave their trace already.
"""

import contextlib
import logging
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from confluent_kafka import Consumer, Message, TopicPartition

from icestream.kafka.clients import committed_positions
from icestream.kafka.log_mark import checksum
from icestream.messages.activity import decode_activity
from icestream.messages.checks import parse
from icestream.messages.message_id import MessageId
from icestream.messages.plausible import ANY_LIMITS, ANY_TIME, TimeLimits, Times
from icestream.messages.raw import decode_raw
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW, SAMPLES
from icestream.v1.common_pb2 import BatchId, Source
from icestream.v1.samples_pb2 import SampleBatch
from streams.logs.log_reader import committed_in_log, log_consumer, log_range, read_range, read_with
from streams.partition.outbox import POSITION_HEADER
from streams.partition.position import Position
from streams.partition.process import Processor

MAX_RAW = 2000
"""Raw messages to process again, for each partition."""
MAX_ACTIVITY = 20_000
"""Activity messages to process again: more, because raw messages that were not processed yet need them, too."""
TAIL = 2 * MAX_RAW
"""Offsets of icestream.samples to read back, for each partition. Messages have them, and ends of transactions."""
_PORTION_BYTES = 1_000_000
"""A portion of these messages ends with the one that brings it to so many bytes."""
_TIMEOUT_S = 10.0


_logger = logging.getLogger(__name__)

ChecksumAt = Callable[[str, int], int | None]
"""Tells the checksum of the message at an offset of a topic; -1: there is none; None: it was there, and Kafka has
deleted it because of its age."""


@dataclass(frozen=True)
class LogEntry:
    """What a message on icestream.samples says about itself."""

    source: Source
    position: Position


@dataclass(frozen=True)
class RecoveryPlan:
    """The messages that rebuild a partition's state: offsets [from, next) of both topics."""

    earlier: list[BatchId] = field(default_factory=list)  # processed raw batches before `raw_from`
    activity_before: dict[int, int] = field(default_factory=dict)  # raw message -> the activity that was next then
    raw_from: int = 0
    raw_next: int = 0  # from here on nothing was published
    activity_from: int = 0
    activity_next: int = 0
    raw_committed: int = 0  # from here on announcements may be missing


@dataclass(frozen=True)
class InputMessage:
    """A message to process again."""

    topic: str
    offset: int
    value: bytes
    times: Times = ANY_TIME  # that it may hold


class Recovery:
    """A plan, and its messages, which are read while they are processed. Safe for several threads."""

    def __init__(self, plan: RecoveryPlan | None = None, messages: Iterator[InputMessage] | None = None) -> None:
        self.plan = plan or RecoveryPlan()
        self._messages = messages or iter(())
        self._lock = threading.Lock()

    def portion(self) -> list[InputMessage]:
        """Reads on; returns the next messages, [] after the last one. Raises KafkaException."""
        portion: list[InputMessage] = []
        size = 0
        with self._lock:
            while size < _PORTION_BYTES and (message := next(self._messages, None)) is not None:
                portion.append(message)
                size += len(message.value)
        return portion

    def close(self) -> None:
        """Ends the connections. Waits for a `portion` that runs."""
        with self._lock:
            self._messages = iter(())


def read(
    settings: KafkaSettings,
    partition: int,
    limits: TimeLimits = ANY_LIMITS,
    on_message: Callable[[], None] = lambda: None,
) -> Recovery:
    """Reads what a partition's state can be rebuilt from. `limits`: those that live processing applies. `on_message` is
    called for each message. Raises KafkaException when Kafka does not answer."""
    with contextlib.closing(log_consumer(settings)) as reader:
        cluster = str(reader.list_topics(SAMPLES, timeout=_TIMEOUT_S).cluster_id)
        partitions = [TopicPartition(topic, partition) for topic in (RAW, ACTIVITY)]
        positions = committed_positions(reader, partitions, _TIMEOUT_S)
        _, end = log_range(reader, SAMPLES, partition)
    # Workers also process messages of transactions that are open: the ends are behind those.
    with contextlib.closing(log_consumer(settings, **{"isolation.level": "read_uncommitted"})) as reader:
        (raw_low, raw_end), (activity_low, activity_end) = (
            log_range(reader, topic, partition) for topic in (RAW, ACTIVITY)
        )
        raw_committed = committed_in_log(positions[0].offset, raw_low, raw_end)
        activity_committed = committed_in_log(positions[1].offset, activity_low, activity_end)
        all_entries = []
        for message in read_range(settings, SAMPLES, partition, end - TAIL, end):
            on_message()
            if entry := log_entry(message, cluster):
                all_entries.append(entry)
        checksum_at = partial(_checksum_at, reader, partition)
        entries = entries_of_present_logs(all_entries, checksum_at)
        last = entries[-1].position if entries else Position()
        # What was committed of a log that is no more does not count.
        if all_entries and _is_absent(all_entries[-1].position, RAW, checksum_at):
            raw_committed = min(raw_committed, last.raw_next)
        if all_entries and _is_absent(all_entries[-1].position, ACTIVITY, checksum_at):
            activity_committed = min(activity_committed, last.activity_next)
        anew = made_anew_unnoticed(entries, checksum_at)
    if anew:
        entries = []
        raw_committed = 0 if RAW in anew else raw_committed
        activity_committed = 0 if ACTIVITY in anew else activity_committed
    if len(entries) < len(all_entries):
        _logger.warning(
            "partition %d: a topic was made anew, or Kafka has lost messages: goes on after the last message before"
            " which all were processed", partition,
        )  # fmt: skip
    plan = make_plan(entries, raw_committed, activity_committed, raw_low, activity_low)
    if not entries:  # batches that were published may come again
        plan = replace(plan, earlier=_raw_batches(complete_outputs(all_entries)[0]))
    raw = read_range(settings, RAW, partition, plan.raw_from, plan.raw_next)
    activity = read_range(settings, ACTIVITY, partition, plan.activity_from, plan.activity_next)
    return Recovery(
        plan, in_order(plan, _input_messages(RAW, raw, limits), _input_messages(ACTIVITY, activity, limits))
    )


def entries_of_present_logs(entries: list[LogEntry], checksum_at: ChecksumAt) -> list[LogEntry]:
    """Returns the entries whose positions are of the logs as they are now.

    Offsets are given to other messages if a topic is made anew, or Kafka has lost its last messages. What was processed
    of those must not count: new messages would seem to be processed. So the last messages before a position must be
    those that were processed.
    """

    def is_absent(entry: LogEntry) -> bool:
        return any(_is_absent(entry.position, topic, checksum_at) for topic in (RAW, ACTIVITY))

    end, back = len(entries), 1  # `end`: before the first entry that is absent, as far as it is known
    while end > 0 and is_absent(entries[end - 1]):
        end, back = end - back, 2 * back
    if end < len(entries):
        end = bisect_left(entries, True, max(end, 0), key=is_absent)
    present: list[LogEntry] = []
    for entry in reversed(entries[:end]):
        if present and not entry.position.is_before(present[-1].position):  # of a log before a change
            break
        present.append(entry)
    return present[::-1]


def made_anew_unnoticed(entries: list[LogEntry], checksum_at: ChecksumAt) -> set[str]:
    """Returns the topics that were made anew within a moment. `entries`: as `entries_of_present_logs` returned them.

    Then a worker went on at the same offset of the new log. What it processed there is as it was, but what it processed
    before is not there, and what is there was never processed.
    """
    first = {topic: next((e.position for e in entries if e.position.last(topic)), None) for topic in (RAW, ACTIVITY)}
    return {topic for topic, position in first.items() if position and _is_absent(position, topic, checksum_at)}


def _is_absent(position: Position, topic: str, checksum_at: ChecksumAt) -> bool:
    last = position.last(topic)
    found = checksum_at(topic, last.offset) if last else None
    return last is not None and found is not None and (found < 0 or found != (last.checksum or found))


def _checksum_at(reader: Consumer, partition: int, topic: str, offset: int) -> int | None:
    low, _ = log_range(reader, topic, partition)
    if offset < low:
        return None
    return next((checksum(message.value()) for message in read_with(reader, topic, partition, offset, offset + 1)), -1)


def make_plan(
    entries: list[LogEntry], raw_committed: int, activity_committed: int, raw_low: int = 0, activity_low: int = 0
) -> RecoveryPlan:
    """Returns what to process again. `entries`: the end of icestream.samples; `*_low`: what Kafka still has.

    A raw message is left out if activity is left out that it may have been joined with. Otherwise its samples would
    seem to have no trace, and activity that is sent again would give them a second one.
    """
    log, incomplete = complete_outputs(entries)
    if not log:  # raw batches may still wait for activity of which nothing was published
        first = max(activity_low, activity_committed - MAX_ACTIVITY)
        return RecoveryPlan(activity_from=first, activity_next=activity_committed, raw_committed=raw_committed)
    position = log[-1].position
    activity_next = max(position.activity_next, activity_committed)
    if incomplete:
        activity_next = max(activity_next, activity_next_before(incomplete))
    raw_log = [entry for entry in log if entry.source.topic == RAW]
    raw_first = max(min(position.raw_from, raw_committed), raw_low, position.raw_next - MAX_RAW)
    activity_first = max(activity_low, activity_next - MAX_ACTIVITY)
    used = [e for e in raw_log if e.source.offset >= raw_first and e.position.activity_from >= activity_first]
    activity_from = used[0].position.activity_from if used else position.activity_from
    raw_from = used[0].source.offset if used else position.raw_next
    return RecoveryPlan(
        earlier=_raw_batches(entry for entry in raw_log if entry.source.offset < raw_from),
        activity_before={entry.source.offset: entry.position.activity_next for entry in used},
        raw_from=raw_from,
        raw_next=position.raw_next,
        activity_from=max(activity_from, activity_first),
        activity_next=activity_next,
        raw_committed=raw_committed,
    )


def _raw_batches(entries: Iterable[LogEntry]) -> list[BatchId]:
    return [entry.source.batch for entry in entries if entry.source.topic == RAW]


def in_order(
    plan: RecoveryPlan, raw: Iterable[InputMessage], activity: Iterable[InputMessage]
) -> Iterator[InputMessage]:
    """Yields the messages of both topics in the order in which they were processed."""
    later = iter(activity)
    waiting = next(later, None)
    for message in raw:
        activity_next = plan.activity_before.get(message.offset, 0)
        while waiting is not None and waiting.offset < activity_next:
            yield waiting
            waiting = next(later, None)
        yield message
    if waiting is not None:
        yield waiting
        yield from later


class Rebuilding:
    """Rebuilds a partition's state in `processor`: `add` every message, then `finish`."""

    def __init__(self, plan: RecoveryPlan, processor: Processor, partition: int, cluster: str) -> None:
        self._plan = plan
        self._processor = processor
        self._partition = partition
        self._cluster = cluster
        self._state = processor.partition(partition)
        self._announcing = False
        for batch in plan.earlier:
            self._state.add(batch, RAW)

    def add(self, message: InputMessage) -> tuple[bytes, list[bytes]]:
        """Processes a message; returns its key, and the announcements that may be missing on icestream.stacks."""
        message_id = MessageId(
            self._cluster, message.topic, self._partition, message.offset, checksum(message.value)
        )  # fmt: skip
        if message.topic == RAW and message.offset >= self._plan.raw_committed and not self._announcing:
            self._announcing = True
            self._state.announcer.forget()
        try:
            if message.topic == RAW:
                outputs = self._processor.raw_columns(decode_raw(message.value, message.times), message_id)
            else:
                outputs = self._processor.activity_columns(decode_activity(message.value, message.times), message_id)
        except Exception:  # a message that cannot be processed is among the dead letters already
            return b"", []
        return outputs.key, outputs.stacks if self._announcing else []

    def finish(self) -> None:
        if not self._announcing:
            self._state.announcer.forget()
        state, plan = self._state, self._plan
        if state.raw_next != plan.raw_next:  # the last message is a bad one, or Kafka has deleted it
            state.raw_next, state.raw_checksum = plan.raw_next, 0
        if state.activity_next != plan.activity_next:
            state.activity_next, state.activity_checksum = plan.activity_next, 0


def complete_outputs(entries: list[LogEntry]) -> tuple[list[LogEntry], LogEntry | None]:
    """Returns the last part of every output that was published completely, and a part of the incomplete output at the
    end of the log, if there is one."""
    log: list[LogEntry] = []
    incomplete = None
    for entry in entries:
        incomplete = entry
        if entry.source.part + 1 >= entry.source.parts:
            log.append(entry)
            incomplete = None
    return log, incomplete


def activity_next_before(entry: LogEntry) -> int:
    """Returns the activity message that was next when the entry's input was processed."""
    return entry.source.offset if entry.source.topic == ACTIVITY else entry.position.activity_next


def log_entry(message: Message, cluster: str) -> LogEntry | None:
    """Reads an entry; None where the message is of another cluster, or of another producer."""
    headers = dict(message.headers() or [])
    try:
        source = parse(SampleBatch, message.value()).source
        position = Position.parse(headers.get(POSITION_HEADER))
    except ValueError:
        return None
    if source.cluster != cluster or source.partition != message.partition():
        return None
    return LogEntry(source, position)


def _input_messages(topic: str, messages: Iterable[Message], limits: TimeLimits) -> Iterator[InputMessage]:
    for message in messages:
        times = limits.collected(message.timestamp()[1])
        yield InputMessage(topic, message.offset() or 0, message.value() or b"", times)
