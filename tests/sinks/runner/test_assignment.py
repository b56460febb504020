"""The partitions of a sink: what it holds of them, what is due, and what an earlier owner began."""

from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition
from prometheus_client import REGISTRY

from icestream.kafka.clients import consumer
from icestream.kafka.readiness import GroupOffsets, Standstills
from icestream.settings import KafkaSettings
from icestream.topics import SAMPLES
from sinks.runner import assignment
from sinks.runner.assignment import RANGES_PER_S, Assignment
from sinks.runner.pending import MESSAGE_BYTES, Pending
from sinks.runner.ranges import InFlight
from tests.sinks.running import Recording, send
from tests.waiting import PATIENCE_S


def test_a_partition_that_is_not_read_while_its_lag_grows_is_named() -> None:
    sink, reader, standstills = Assignment(Recording()), consumer(KafkaSettings(), "nobody"), Standstills()
    lag_of = {"sink": "recording", "topic": SAMPLES}
    assert REGISTRY.get_sample_value("icestream_sinks_gaps_total", lag_of) is not None  # before there is any
    sink.assigned(reader, [TopicPartition(SAMPLES, 0), TopicPartition(SAMPLES, 1)])

    def told(lags: list[int]) -> str | None:
        foreign = {(SAMPLES, 99): 1000}
        offsets = GroupOffsets(
            dict.fromkeys(sink.read_to(), 0), {(SAMPLES, n): lag for n, lag in enumerate(lags)} | foreign
        )
        standstills.update(offsets, sink.read_to(), 10.0 * max(lags))
        sink.note_lags(offsets, standstills)
        return standstills.longer_than(15.0)

    for lag in (5, 6, 7):
        sink.add(reader, Message(SAMPLES, 0, offset=lag, value=b"x"))
        reason = told([lag, lag])
    assert reason == f"nothing of {SAMPLES}/1 was processed for 20 s, and 7 messages wait"
    assert REGISTRY.get_sample_value("icestream_sinks_lag_messages", {**lag_of, "partition": "1"}) == 7
    assert REGISTRY.get_sample_value("icestream_sinks_lag_messages", {**lag_of, "partition": "99"}) is None
    for number in (0, 1):
        sink.add(reader, Message(SAMPLES, number, offset=8, value=b"x"))
    assert told([9, 9]) is None
    assert told([10]) is None  # no leader answers for the other one: its lag is not 0
    assert REGISTRY.get_sample_value("icestream_sinks_lag_messages", {**lag_of, "partition": "1"}) == 9
    reader.close()


def test_a_sink_that_holds_too_much_reads_nothing_more_and_writes_at_once(
    in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assignment, "MAX_HELD_BYTES", 2 * MESSAGE_BYTES + 1000)
    sink, reader = Assignment(Recording()), consumer(in_process_broker, "nobody")
    reader.assign([TopicPartition(SAMPLES, number) for number in range(2)])
    sink.add(reader, Message(SAMPLES, 0, offset=0, value=bytes(999)))
    sink.hold_back(reader)
    assert sink._paused == set()
    assert sink.due(PATIENCE_S, 10**6) == []
    sink.add(reader, Message(SAMPLES, 1, offset=0, value=b"x"))
    sink.hold_back(reader)
    assert sink._paused == {(SAMPLES, 0), (SAMPLES, 1)}
    assert sink.due(PATIENCE_S, 10**6) == [(SAMPLES, 0), (SAMPLES, 1)]
    for pending in sink.pending.values():
        pending.next()
        pending.written()
    sink.hold_back(reader)
    assert sink._paused == set()
    reader.close()


def test_a_range_of_small_messages_is_bounded_by_the_memory_that_they_take() -> None:
    pending = Pending()
    for offset in range(1000):
        pending.add(Message(SAMPLES, 0, offset=offset, value=b"x"))
    assert pending.due(PATIENCE_S, 1_000_000)
    assert pending.next(1_000_000).last < 1_000_000 // MESSAGE_BYTES + 1


def test_a_sink_with_many_partitions_inserts_as_often_as_one_with_few() -> None:
    sink = Assignment(Recording())
    for partition in range(500 * RANGES_PER_S):
        pending = sink.pending[SAMPLES, partition] = Pending()
        pending.add(Message(SAMPLES, partition, offset=0, value=b"x"))
    sink.pending[SAMPLES, 5].since -= 100.0
    assert sink.due(1.0, 2 * MESSAGE_BYTES) == []
    sink.pending[SAMPLES, 7].since -= 501.0
    assert sink.due(1.0, 2 * MESSAGE_BYTES) == [(SAMPLES, 7)]
    sink.pending[SAMPLES, 9].add(Message(SAMPLES, 9, offset=1, value=bytes(1000)))
    assert sink.due(1.0, 2 * MESSAGE_BYTES) == [(SAMPLES, 7), (SAMPLES, 9)]
    assert len(sink.due(0.0, 2 * MESSAGE_BYTES)) == 500 * RANGES_PER_S


@pytest.mark.parametrize(
    ("low", "high", "kept"), [(0, 10, True), (3, 10, True), (9, 12, True), (0, 9, False), (10, 12, False)]
)
def test_a_range_in_flight_is_completed_only_while_kafka_has_its_last_message(low: int, high: int, kept: bool) -> None:
    class Log:
        """Stands for a reader of a log with these ends."""

        def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
            return low, high

    in_flight = InFlight(3, 9, "0123456789ab")
    committed = TopicPartition(SAMPLES, 0, 3, metadata=str(in_flight))
    found = Assignment(Recording())._range_in_flight(Log(), committed)  # type: ignore[arg-type]
    assert found == (in_flight if kept else None)


@pytest.mark.parametrize(
    "metadata", ["", "inflight:5-1", "inflight:1-2:xyz", None, "inflight:" + "9" * 40 + "-1:" + "0" * 12]
)
def test_metadata_of_others_is_not_taken_for_a_range(metadata: str | None) -> None:
    assert InFlight.parse(metadata) is None
    assert InFlight.parse(str(InFlight(3, 9, "0123456789ab"))) == InFlight(3, 9, "0123456789ab")


@pytest.mark.parametrize("read", [1, 2])
def test_a_consumer_that_gives_nothing_of_what_waits_is_replaced(in_process_broker: KafkaSettings, read: int) -> None:
    send(in_process_broker, SAMPLES, b"one", b"two")
    sink, reader = Assignment(Recording()), consumer(in_process_broker, "nobody")
    sink.assigned(reader, [TopicPartition(SAMPLES, 0)])
    for offset in range(read):
        sink.add(reader, Message(SAMPLES, 0, offset=offset, value=b"read"))
    told = []
    for polls in (100, 100, 1, 100):
        for _ in range(polls):
            sink.hold_back(reader)
        sink.needs_consumer = False
        sink.check_reading(in_process_broker, {(SAMPLES, 0): 1})
        told.append(sink.needs_consumer)
    assert told == ([False, True, False, True] if read == 1 else [False] * 4)
    reader.close()
