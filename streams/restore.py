"""What a worker must do again to be where the one before it stopped.

A partition's outputs depend on how far activity was processed when a raw message was, and the other way round.
icestream.samples is the log of that: every message names its source, and its header `icestream.position` says how far
both topics were processed then, and from which offsets on what is remembered can be rebuilt. A worker that takes over a
partition reads the end of that log, then the raw and activity messages that are still remembered, and processes them
again without publishing: the samples that no activity processed so far covers are remembered again (in whichever order
both came), so that late activity corrects each exactly once; batches that collectors send again are recognised.

What can be lost: with more than MAX_MESSAGES to read again, or messages that Kafka has deleted, the oldest are left
out: activity that comes late for those samples does not correct them; they stay without a trace. Repeated raw batches
are recognised if the first one is among the last TAIL messages of the partition, or still remembered; else both are
published, with the same batch ID, by which sinks know them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from google.protobuf.message import DecodeError

from icestream.kafka import consumer
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW, SAMPLES, STREAMS_GROUP
from icestream.v1.common_pb2 import BatchId, Source
from icestream.v1.samples_pb2 import SampleBatch
from streams.deduplicate import Announced
from streams.outbox import POSITION_HEADER
from streams.process import Outputs, Processor
from streams.publish import Origin

TAIL = 500
"""Messages of icestream.samples to read back, of a partition."""
MAX_MESSAGES = 2000
"""Raw, and activity, messages to process again, of a partition."""
_TIMEOUT_S = 10.0
_IDLE_S = 5.0


@dataclass(frozen=True)
class Past:
    """What to do again."""

    seen: list[BatchId] = field(default_factory=list)  # raw batches before those of `raw`
    raw: list[tuple[int, bytes]] = field(default_factory=list)  # offset, message
    activity: list[tuple[int, bytes]] = field(default_factory=list)
    raw_next: int = 0  # from here on nothing was published
    activity_next: int = 0
    raw_committed: int = 0  # from here on announcements may be missing


@dataclass(frozen=True)
class Published:
    """A message on icestream.samples."""

    source: Source
    position: tuple[int, int, int, int]  # streams.state.Partition.position()


def read(settings: KafkaSettings, partition: int) -> Past:
    """Reads back a partition. Raises KafkaException when Kafka does not answer."""
    reader = consumer(settings, STREAMS_GROUP)
    try:
        cluster = str(reader.list_topics(SAMPLES, timeout=_TIMEOUT_S).cluster_id)
        places = [TopicPartition(topic, partition) for topic in (RAW, ACTIVITY)]
        committed = [max(place.offset, 0) for place in reader.committed(places, timeout=_TIMEOUT_S)]
        tail = [published(message, cluster) for message in _last(reader, SAMPLES, partition, TAIL)]
        log, broken_off = whole([entry for entry in tail if entry])
        if not log:  # activity that nothing was published of may still be waited for
            activity = _range(reader, ACTIVITY, partition, 0, committed[1])
            return Past(activity=activity, activity_next=committed[1], raw_committed=committed[0])
        raw_from, activity_from, raw_next, activity_next = log[-1].position
        if broken_off:
            activity_next = max(activity_next, activity_before(broken_off))
        raw = _range(reader, RAW, partition, raw_from, raw_next)
        order = {entry.source.offset: entry.position for entry in log if entry.source.topic == RAW}
        if raw_from in order:
            activity_from = min(activity_from, order[raw_from][1])
        activity = _range(reader, ACTIVITY, partition, activity_from, max(activity_next, committed[1]))
        return Past(
            seen=[e.source.batch for e in log if e.source.topic == RAW and e.source.offset < raw_from],
            raw=raw,
            activity=activity,
            raw_next=raw_next,
            activity_next=max(activity_next, committed[1]),
            raw_committed=committed[0],
        )
    finally:
        reader.close()


def again(past: Past, processor: Processor, partition: int, cluster: str) -> Iterator[Outputs]:
    """Processes it again; yields outputs after every message, with announcements where they may be missing."""
    state = processor.partition(partition)
    for batch in past.seen:
        state.collector(batch).raw.add(batch.sequence, batch.part, batch.parts)
    announcing = False
    events = [(ACTIVITY, *message) for message in past.activity] + [(RAW, *message) for message in past.raw]
    for topic, offset, value in events:
        if topic == RAW and offset >= past.raw_committed and not announcing:
            announcing, state.announced = True, Announced()
        try:
            process = processor.raw if topic == RAW else processor.activity
            outputs = process(value, Origin(cluster, topic, partition, offset))
        except Exception:  # whatever was wrong with it: it is among the dead letters already
            continue
        yield Outputs(outputs.key, outputs.stacks if announcing else [])
    if not announcing:
        state.announced = Announced()
    state.raw_next, state.activity_next = past.raw_next, past.activity_next


def whole(entries: list[Published]) -> tuple[list[Published], Published | None]:
    """The last part of every output that was published to its end, and a part of one that broke off at last."""
    log: list[Published] = []
    broken_off = None
    for entry in entries:
        broken_off = entry
        if entry.source.part + 1 >= entry.source.parts:
            log.append(entry)
            broken_off = None
    return log, broken_off


def activity_before(entry: Published) -> int:
    """The activity offset that came next when this output's input was processed."""
    return entry.source.offset if entry.source.topic == ACTIVITY else entry.position[3]


def published(message: Message, cluster: str) -> Published | None:
    """Where a message on icestream.samples came from; None for one of another cluster, or of somebody else."""
    headers = dict(message.headers() or [])
    try:
        source = SampleBatch.FromString(message.value() or b"").source
        position = tuple(int(number) for number in (headers.get(POSITION_HEADER) or b"").split())
    except (DecodeError, ValueError):
        return None
    if source.cluster != cluster or len(position) != 4 or source.partition != message.partition():
        return None
    return Published(source, position)


def _last(reader: Consumer, topic: str, partition: int, count: int) -> list[Message]:
    _, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S)
    return _messages(reader, topic, partition, high - count, high)


def _range(reader: Consumer, topic: str, partition: int, first: int, end: int) -> list[tuple[int, bytes]]:
    found = _messages(reader, topic, partition, max(first, end - MAX_MESSAGES), end)
    return [(message.offset() or 0, message.value() or b"") for message in found]


def _messages(reader: Consumer, topic: str, partition: int, first: int, end: int) -> list[Message]:
    """Messages with offsets in [first, end), of those that Kafka still has."""
    low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S)
    first, end = max(first, low), min(end, high)
    if first >= end:
        return []
    reader.assign([TopicPartition(topic, partition, first)])
    messages: list[Message] = []
    try:
        while (message := reader.poll(_IDLE_S)) is not None:
            if (error := message.error()) is not None:
                raise KafkaException(error)
            if (message.offset() or 0) < end:
                messages.append(message)
            if (message.offset() or 0) >= end - 1:
                break
    finally:
        reader.unassign()
    return messages
