"""A worker that is killed at any moment, and the next one, publish together what one would have."""

import random
import tracemalloc
from collections import Counter

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition

from icestream.kafka import clients
from icestream.messages.checks import BadMessage
from icestream.messages.message_id import MessageId
from icestream.messages.plausible import ANY_LIMITS, DAY_NS, TimeLimits
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW, SAMPLES, STREAMS_GROUP
from icestream.v1.common_pb2 import Source
from streams.logs import log_reader
from streams.partition import recovery
from streams.partition.outbox import POSITION_HEADER
from streams.partition.position import Position
from streams.partition.process import OutputMessages, Processor
from tests.data.handwritten import START, Interval, Raw, Sample, activity
from tests.data.messages import WINDOW_NS, context
from tests.streams.outputs import Row, rows, stacks
from tests.streams.partition.test_process import expected_rows
from tests.waiting import PATIENCE_S

SEQUENCES = range(1, 9)
INTERVALS = {  # each ends in its window; some begin in one long before
    sequence: [
        Interval(1, (sequence - 1) * 5_000_000, (sequence - 1) * 5_000_000 + 2_500_000, context(sequence)),
        Interval(2, max(sequence - 3, 0) * 5_000_000, sequence * 5_000_000 - 1000, context(100 + sequence)),
    ]
    for sequence in SEQUENCES
    if sequence % 3 or sequence == 3
}
# Thread 2 has only every third, as the intervals of a thread do not overlap.
FOUND = {s: [i for i in found if i.tid == 1 or s % 3 == 0] for s, found in INTERVALS.items()}
RAWS = {
    sequence: Raw(
        [Sample(t * 90_000, stack=t % 4, tid=t % 3) for t in range(50)],
        [[0], [1, 0], [2, 1, 0], []],
        [(1, sequence), (1, 1000), (3, 4)],
        sequence=sequence,
        start=START + (sequence - 1) * WINDOW_NS,
        activity_sequence=sequence,
    )
    for sequence in SEQUENCES
}


class Kafka:
    """A partition of the topics, and what was published by whoever lived."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.producer: Producer = clients.producer(settings)
        self.cluster = str(self.producer.list_topics(timeout=300).cluster_id)
        self.samples: dict[tuple[str, int, int], bytes] = {}  # what a sink keeps: each source once
        self.stacks: list[bytes] = []
        self.committed = {RAW: 0, ACTIVITY: 0}
        self._group = clients.consumer(settings, STREAMS_GROUP)

    def send(self, topic: str, value: bytes, headers: list[tuple[str, str | bytes | None]] | None = None) -> None:
        self.producer.produce(topic, value, partition=0, headers=headers or [])

    def publish(self, message_id: MessageId, outputs: OutputMessages, parts: int | None = None) -> None:
        """The outputs, or only some of their parts: the worker is killed in between."""
        header: list[tuple[str, str | bytes | None]] = [(POSITION_HEADER, outputs.position.encode())]
        self.stacks += outputs.stacks
        for part, message in enumerate(outputs.samples[:parts]):
            self.send(SAMPLES, message, header)
            self.samples.setdefault((message_id.topic, message_id.offset, part), message)

    def commit(self, topic: str, offset: int) -> None:
        self.committed[topic] = offset
        self._group.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2))])
def test_a_killed_worker_and_its_successors_lose_nothing_and_double_nothing(
    in_process_broker: KafkaSettings, seed: int
) -> None:
    chance = random.Random(seed)
    broker = Kafka(in_process_broker)
    inputs: dict[str, list[bytes]] = {RAW: [], ACTIVITY: []}
    for sequence in SEQUENCES:
        inputs[ACTIVITY].append(activity(FOUND.get(sequence, []), sequence=sequence))
        inputs[RAW].append(RAWS[sequence].bytes())
    inputs[RAW].insert(3, b"\xff not protobuf")
    inputs[RAW].append(RAWS[2].bytes())  # sent again from a spool
    for topic, messages in inputs.items():
        for message in messages:
            broker.send(topic, message)
    assert broker.producer.flush(PATIENCE_S) == 0

    lives = 0
    while live(broker, inputs, chance):
        lives += 1
        assert lives < 100
    expected: Counter[Row] = Counter()
    found = [interval for some in FOUND.values() for interval in some]
    for raw in RAWS.values():
        expected.update(expected_rows(raw, found))
    assert rows(list(broker.samples.values())) == expected
    nodes, locations = stacks(broker.stacks)
    assert {row[4] for row in expected} - {0} <= set(nodes)
    assert {location for _, location in nodes.values()} <= set(locations)


def recovered(broker: Kafka, processor: Processor, limits: TimeLimits = ANY_LIMITS) -> list[bytes]:
    """Rebuilds a state; returns what it announces."""
    read = recovery.read(broker.settings, 0, limits)
    rebuilding = recovery.Rebuilding(read.plan, processor, 0, broker.cluster)
    announced = [stack for portion in iter(read.portion, []) for one in portion for stack in rebuilding.add(one)[1]]
    rebuilding.finish()
    read.close()
    return announced


def live(broker: Kafka, inputs: dict[str, list[bytes]], chance: random.Random) -> bool:
    """A worker that dies early or late, with outputs published or not; False when there was nothing left to do."""
    processor = Processor()
    broker.stacks += recovered(broker, processor)
    state = processor.partition(0)
    done = {RAW: state.raw_next, ACTIVITY: state.activity_next}
    left = {topic: max(done[topic], broker.committed[topic]) for topic in done}
    for _ in range(chance.randrange(1, 7)):
        topics = [topic for topic, messages in inputs.items() if left[topic] < len(messages)]
        if not topics:
            return False
        topic = chance.choice(topics)
        message_id = MessageId(broker.cluster, topic, 0, left[topic])
        left[topic] += 1
        try:
            process = processor.raw if topic == RAW else processor.activity
            outputs = process(inputs[topic][message_id.offset], message_id)
        except BadMessage:
            continue
        killed = chance.random() < 0.2
        broker.publish(message_id, outputs, parts=chance.choice([0, 1]) if killed else None)
        assert broker.producer.flush(PATIENCE_S) == 0
        if killed:
            break
        if chance.random() < 0.5:
            broker.commit(topic, message_id.offset + 1)
    return True


def test_nothing_is_recovered_from_another_cluster(in_process_broker: KafkaSettings) -> None:
    broker = Kafka(in_process_broker)
    message_id = MessageId("another", RAW, 0, 3)
    broker.publish(message_id, Processor().raw(RAWS[1].bytes(), message_id))
    broker.send(SAMPLES, b"somebody else's")
    assert broker.producer.flush(PATIENCE_S) == 0
    assert recovery.read(in_process_broker, 0).plan == recovery.RecoveryPlan()


def test_what_is_processed_again_is_read_in_portions_of_so_many_bytes(
    in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, processor, broker = 100_000, Processor(), Kafka(in_process_broker)
    logged: list[tuple[str, int, bytes]] = []
    for sequence in range(1, 101):
        samples = [Sample(us) for us in range(400 * (sequence % 6))]
        raw = Raw(samples, sequence=sequence, activity_sequence=sequence).bytes()
        found = [Interval(1, 10 * us, 10 * us + 5, context(sequence)) for us in range(600 * (sequence % 2))]
        for topic, message in ((ACTIVITY, activity(found, sequence=sequence)), (RAW, raw)):
            process = processor.raw if topic == RAW else processor.activity
            message_id = MessageId(broker.cluster, topic, 0, sequence - 1)
            outputs = process(message, message_id)
            broker.send(topic, message)
            broker.publish(message_id, outputs)
            logged.append((topic, sequence - 1, message))
    assert broker.producer.flush(PATIENCE_S) == 0
    assert sum(len(message) for _, _, message in logged) > 10 * limit
    monkeypatch.setattr(recovery, "_PORTION_BYTES", limit)
    read = recovery.read(in_process_broker, 0)
    portions, largest, position = 0, 0, 0
    tracemalloc.start()
    try:
        while portion := read.portion():
            portions += 1
            assert [(one.topic, one.offset, one.value) for one in portion] == logged[position : position + len(portion)]
            position += len(portion)
            size = sum(len(one.value) for one in portion)
            assert size - len(portion[-1].value) < limit
            assert size >= limit or position == len(logged)
            largest = max(largest, size)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        read.close()
    assert position == len(logged)
    assert portions > 9
    assert peak < 4 * largest  # while one is read, there is the one before
    assert largest < 2 * limit


class Paused(clients.Consumer):  # type: ignore[misc]
    """Gets no messages."""

    def assign(self, partitions: list[TopicPartition]) -> None:
        super().assign(partitions)
        self.pause(partitions)


def test_a_log_that_kafka_does_not_deliver_is_not_taken_for_a_shorter_one(
    in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Kafka(in_process_broker)
    broker.send(RAW, RAWS[1].bytes())
    assert broker.producer.flush(PATIENCE_S) == 0
    monkeypatch.setattr(log_reader, "_IDLE_S", 0.2)
    monkeypatch.setattr(clients, "Consumer", Paused)
    with pytest.raises(KafkaException, match="no answer"):
        list(log_reader.read_range(in_process_broker, RAW, 0, 0, 1))


def test_a_successor_refuses_the_times_that_the_first_worker_refused(in_process_broker: KafkaSettings) -> None:
    broker = Kafka(in_process_broker)
    limits = TimeLimits(late_ns=100 * 365 * DAY_NS, early_ns=DAY_NS)
    absurd = START + 50 * 365 * DAY_NS
    messages = [RAWS[1].bytes(), Raw(sequence=2, activity_sequence=1, start=absurd).bytes(), RAWS[3].bytes()]
    processor = Processor()
    for offset, message in enumerate(messages):
        broker.send(RAW, message)
        if offset != 1:  # it is a dead letter
            message_id = MessageId(broker.cluster, RAW, 0, offset)
            broker.publish(message_id, processor.raw(message, message_id))
    assert broker.producer.flush(PATIENCE_S) == 0
    after, careless = Processor(), Processor()
    recovered(broker, after, limits)
    recovered(broker, careless)
    retained = [one.partition(0).retained for one in (processor, after, careless)]
    assert [list(one._samples) for one in retained] == [[0, 2], [0, 2], []]


def test_activity_that_was_committed_before_any_samples_is_still_known(in_process_broker: KafkaSettings) -> None:
    broker = Kafka(in_process_broker)
    broker.send(ACTIVITY, activity(FOUND[1], sequence=1))
    assert broker.producer.flush(PATIENCE_S) == 0
    broker.commit(ACTIVITY, 1)
    processor = Processor()
    recovered(broker, processor)
    outputs = processor.raw(RAWS[1].bytes(), MessageId(broker.cluster, RAW, 0, 0))
    assert rows(outputs.samples) == expected_rows(RAWS[1], FOUND[1])


def test_an_offset_that_was_committed_of_a_deleted_topic_does_not_count(in_process_broker: KafkaSettings) -> None:
    broker = Kafka(in_process_broker)
    for topic in (RAW, ACTIVITY):
        broker.send(topic, RAWS[1].bytes())
        broker.commit(topic, 5)
    assert broker.producer.flush(PATIENCE_S) == 0
    assert recovery.read(broker.settings, 0).plan == recovery.RecoveryPlan()
    for topic in (RAW, ACTIVITY):
        broker.commit(topic, 1)
    assert recovery.read(broker.settings, 0).plan == recovery.RecoveryPlan(raw_committed=1, activity_next=1)


@pytest.mark.parametrize(
    ("offset", "low", "high", "expected"),
    [(-1001, 0, 0, 0), (-1001, 3, 9, 0), (5, 0, 9, 5), (5, 0, 5, 5), (5, 7, 9, 5), (5, 0, 4, 0), (5, 2, 4, 4)],
)
def test_what_is_ahead_after_kafka_lost_messages_is_what_comes_and_in_a_topic_made_anew_everything(
    offset: int, low: int, high: int, expected: int
) -> None:
    assert log_reader.committed_in_log(offset, low, high) == expected


def test_positions_of_a_topic_that_was_made_anew_or_has_lost_its_tail_do_not_count() -> None:
    offsets = [(1, 0), (7, 3), (9, 4), (2, 4), (2, 5), (3, 5)]
    entries = [
        recovery.LogEntry(Source(offset=raw_next - 1), Position(raw_next=raw_next, activity_next=activity_next))
        for raw_next, activity_next in offsets
    ]

    def present(entries: list[recovery.LogEntry], *ends: int) -> list[recovery.LogEntry]:
        of = dict(zip((RAW, ACTIVITY), ends, strict=True))
        return recovery.entries_of_present_logs(entries, lambda topic, offset: 1 if offset < of[topic] else -1)

    assert present(entries[:3], 9, 4) == entries[:3]
    assert present(entries, 4, 5) == entries[3:]
    assert present(entries, 2, 5) == entries[3:5]
    assert present(entries, 3, 4) == entries[3:4]
    assert present(entries, 0, 0) == []
    assert present([], 0, 0) == []


@pytest.mark.parametrize("kept", [0, 1, 2, 5, 30, 31, 99, 100])
def test_processing_goes_on_after_the_last_message_that_kafka_still_has_as_it_was(kept: int) -> None:
    """Whatever came in place of the others: as many as there were, and more."""
    entries = [
        recovery.LogEntry(
            Source(offset=i), Position(raw_next=i + 1, activity_next=i // 3, raw_checksum=i + 1, activity_checksum=7)
        )
        for i in range(100)
    ]

    def checksum_at(topic: str, offset: int) -> int:
        return 7 if topic == ACTIVITY else offset + 1 if offset < kept else 1000

    assert recovery.entries_of_present_logs(entries, checksum_at) == entries[:kept]
