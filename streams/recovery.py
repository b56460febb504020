"""Recovery: rebuilds the state of a partition from Kafka when a worker takes the partition over.

A partition's outputs depend on the order in which its raw and activity messages were processed. The topic
icestream.samples records that order: every message names its source, and its header `icestream.position` is the
`Position` after it. A worker that takes over a partition reads the end of that topic. Then it processes once more the
raw and activity messages that the state needs, without publishing their samples. So it again remembers the samples
without a context, late activity corrects each of them exactly once, and batches that collectors send again are
recognised.

There are two limits:
- Recovery leaves out the oldest messages beyond MAX_MESSAGES, and those that Kafka has deleted. Late activity does not
  correct their samples, which stay without a trace.
- A repeated raw batch is recognised only if the first one is among the last TAIL offsets of icestream.samples, or
  among the raw messages that are processed again. Otherwise both are published with the same batch ID, and sinks skip
  the second.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from icestream.kafka import consumer
from icestream.messages.checks import parse
from icestream.messages.message_id import MessageId
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW, SAMPLES, STREAMS_GROUP
from icestream.v1.common_pb2 import BatchId, Source
from icestream.v1.samples_pb2 import SampleBatch
from streams.deduplicate import Announced
from streams.outbox import POSITION_HEADER
from streams.position import Position
from streams.process import Outputs, Processor

TAIL = 1000
"""Offsets of icestream.samples to read back, for each partition. Messages have them, and ends of transactions."""
MAX_MESSAGES = 2000
"""Raw, and activity, messages to process again, for each partition."""
_TIMEOUT_S = 10.0
_IDLE_S = 5.0


@dataclass(frozen=True)
class Recovery:
    """The messages that rebuild a partition's state, and the offsets at which processing continues."""

    earlier: list[BatchId] = field(default_factory=list)  # processed raw batches before those of `raw`
    raw: list[tuple[int, bytes]] = field(default_factory=list)  # offset, message
    activity: list[tuple[int, bytes]] = field(default_factory=list)
    raw_next: int = 0  # from here on nothing was published
    activity_next: int = 0
    raw_committed: int = 0  # from here on announcements may be missing


@dataclass(frozen=True)
class LogEntry:
    """What a message on icestream.samples says about itself."""

    source: Source
    position: Position


def read(settings: KafkaSettings, partition: int) -> Recovery:
    """Reads what a partition's state can be rebuilt from. Raises KafkaException when Kafka does not answer."""
    reader = consumer(settings, STREAMS_GROUP, **{"enable.partition.eof": True})
    try:
        cluster = str(reader.list_topics(SAMPLES, timeout=_TIMEOUT_S).cluster_id)
        committed = reader.committed([TopicPartition(topic, partition) for topic in (RAW, ACTIVITY)], _TIMEOUT_S)
        raw_committed, activity_committed = (max(offset.offset, 0) for offset in committed)
        entries = [log_entry(message, cluster) for message in _last_messages(reader, SAMPLES, partition, TAIL)]
        log, incomplete = complete_outputs([entry for entry in entries if entry])
        if not log:  # raw batches may still wait for activity of which nothing was published
            activity = _latest_messages(reader, ACTIVITY, partition, 0, activity_committed)
            return Recovery(activity=activity, activity_next=activity_committed, raw_committed=raw_committed)
        position = log[-1].position
        raw_from, activity_from, activity_next = position.raw_from, position.activity_from, position.activity_next
        if incomplete:
            activity_next = max(activity_next, activity_next_before(incomplete))
        activity_next = max(activity_next, activity_committed)
        raw_positions = {entry.source.offset: entry.position for entry in log if entry.source.topic == RAW}
        if raw_from in raw_positions:
            activity_from = min(activity_from, raw_positions[raw_from].activity_from)
        return Recovery(
            earlier=[e.source.batch for e in log if e.source.topic == RAW and e.source.offset < raw_from],
            raw=_latest_messages(reader, RAW, partition, raw_from, position.raw_next),
            activity=_latest_messages(reader, ACTIVITY, partition, activity_from, activity_next),
            raw_next=position.raw_next,
            activity_next=activity_next,
            raw_committed=raw_committed,
        )
    finally:
        reader.close()


def recover(recovery: Recovery, processor: Processor, partition: int, cluster: str) -> Iterator[Outputs]:
    """Rebuilds the partition's state in `processor`; yields outputs after every message, with the announcements that
    may be missing."""
    state = processor.partition(partition)
    for batch in recovery.earlier:
        state.collector(batch).raw.add(batch.sequence, batch.part, batch.parts)
    announcing = False
    messages = [(ACTIVITY, *message) for message in recovery.activity] + [(RAW, *message) for message in recovery.raw]
    for topic, offset, value in messages:
        if topic == RAW and offset >= recovery.raw_committed and not announcing:
            announcing, state.announced = True, Announced()
        try:
            process = processor.raw if topic == RAW else processor.activity
            outputs = process(value, MessageId(cluster, topic, partition, offset))
        except Exception:  # a message that cannot be processed is among the dead letters already
            continue
        yield Outputs(outputs.key, outputs.stacks if announcing else [])
    if not announcing:
        state.announced = Announced()
    state.raw_next, state.activity_next = recovery.raw_next, recovery.activity_next


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


def _last_messages(reader: Consumer, topic: str, partition: int, count: int) -> list[Message]:
    """Reads the messages with the last `count` offsets."""
    _, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S)
    return _messages(reader, topic, partition, high - count, high)


def _latest_messages(reader: Consumer, topic: str, partition: int, first: int, end: int) -> list[tuple[int, bytes]]:
    """Reads (offset, message) of offsets in [first, end): the latest MAX_MESSAGES."""
    messages = _messages(reader, topic, partition, max(first, end - MAX_MESSAGES), end)
    return [(message.offset() or 0, message.value() or b"") for message in messages]


def _messages(reader: Consumer, topic: str, partition: int, first: int, end: int) -> list[Message]:
    """Reads the messages with offsets in [first, end) that Kafka still has."""
    low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S)
    first, end = max(first, low), min(end, high)
    if first >= end:
        return []
    reader.assign([TopicPartition(topic, partition, first)])
    messages: list[Message] = []
    try:
        while (message := reader.poll(_IDLE_S)) is not None:
            if (error := message.error()) is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if error is None and (message.offset() or 0) < end:
                messages.append(message)
            # At the end there may be no message, but the end of a transaction.
            if error is not None or (message.offset() or 0) >= end - 1:
                break
    finally:
        reader.unassign()
    return messages
