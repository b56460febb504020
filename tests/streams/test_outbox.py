import asyncio
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition

from icestream import kafka
from icestream.settings import KafkaSettings
from icestream.topics import SAMPLES, STACKS, STREAMS_GROUP
from streams import recovery
from streams.outbox import Outbox, Outboxes
from streams.position import Position
from streams.process import Outputs
from tests.waiting import PATIENCE_S

GROUP = "somebody"


def visible(settings: KafkaSettings, topic: str = SAMPLES, partition: int = 2) -> list[bytes]:
    """What a reader sees by now."""
    reader = kafka.consumer(settings, "test", **{"enable.partition.eof": True})
    reader.assign([TopicPartition(topic, partition, 0)])
    values = []
    while (message := reader.poll(PATIENCE_S)) is not None and message.error() is None:
        values.append(message.value() or b"")
    assert message is not None
    reader.close()
    return values


def test_the_future_is_done_when_all_is_acknowledged_and_the_position_travels_along(broker: KafkaSettings) -> None:
    async def run() -> None:
        outbox = Outbox(broker, 2, {})
        outputs = Outputs(b"host", [b"stack"], [b"one", b"two"], position=Position(1, 2, 3, 4))
        await asyncio.wait_for(outbox.send(outputs), PATIENCE_S)
        outbox.close()

    asyncio.run(run())
    reader = kafka.consumer(broker, "test")
    reader.assign([TopicPartition(SAMPLES, 2, 0)])
    messages = [reader.poll(PATIENCE_S) for _ in range(2)]
    assert [m.value() for m in messages if m] == [b"one", b"two"]
    assert [m.headers() for m in messages if m] == [[("icestream.position", b"1 2 3 4")]] * 2
    reader.close()
    assert visible(broker, STACKS) == [b"stack"]


def test_a_message_that_kafka_refuses_is_an_error_and_nothing_after_it_is_published(
    in_process_broker: KafkaSettings,
) -> None:
    async def run() -> None:
        outbox = Outbox(in_process_broker, 2, {})
        futures = [outbox.send(Outputs(b"k", [], [value])) for value in (bytes(2_000_000), b"later")]
        for future in [*futures, outbox.sent()]:
            with pytest.raises(RuntimeError, match="did not take"):
                await asyncio.wait_for(future, PATIENCE_S)
        outbox.close()

    asyncio.run(run())
    assert visible(in_process_broker) == []


@pytest.mark.kafka
def test_nobody_sees_what_an_earlier_owner_publishes_after_a_takeover(apache_kafka: KafkaSettings) -> None:
    """As a frozen worker does that wakes up."""

    async def run() -> None:
        earlier = Outbox(apache_kafka, 2, {})
        await asyncio.wait_for(earlier.send(Outputs(b"host", [], [b"before"])), PATIENCE_S)
        later = Outbox(apache_kafka, 2, {})
        await asyncio.wait_for(later.opened, PATIENCE_S)
        late = earlier.send(Outputs(b"host", [b"late"], [b"late"]))
        with pytest.raises(RuntimeError, match="another worker has taken partition 2 over"):
            await asyncio.wait_for(late, PATIENCE_S)
        await asyncio.wait_for(later.send(Outputs(b"host", [], [b"after"])), PATIENCE_S)
        for outbox in (earlier, later):
            outbox.close()

    asyncio.run(run())
    assert visible(apache_kafka) == [b"before", b"after"]
    assert visible(apache_kafka, STACKS) == []


@pytest.mark.kafka
def test_a_takeover_aborts_the_transaction_that_a_killed_owner_left(apache_kafka: KafkaSettings) -> None:
    killed = kafka.producer(apache_kafka, **{"transactional.id": f"{STREAMS_GROUP}.2"})
    killed.init_transactions(PATIENCE_S)
    killed.begin_transaction()
    killed.produce(SAMPLES, b"half", partition=2)
    assert killed.flush(PATIENCE_S) == 0

    async def run() -> None:
        outbox = Outbox(apache_kafka, 2, {})
        await asyncio.wait_for(outbox.opened, PATIENCE_S)
        assert recovery.read(apache_kafka, 2).plan == recovery.Plan()
        await asyncio.wait_for(outbox.send(Outputs(b"host", [], [b"whole"])), PATIENCE_S)
        outbox.close()

    asyncio.run(run())
    assert visible(apache_kafka) == [b"whole"]


def test_with_the_in_process_broker_it_waits_until_the_readers_have_read(
    in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("streams.outbox._COMPLAIN_S", 0.0)
    size = 400_000
    outputs = Outputs(b"host", [], [bytes(size)])

    async def run() -> None:
        outboxes = Outboxes(replace(in_process_broker, kafka_in_process=True), [GROUP])
        outbox = outboxes.open(0)
        for _ in range(7):  # 2.8 MB
            await asyncio.wait_for(outbox.send(outputs), PATIENCE_S)
        assert "waiting for readers" not in caplog.text
        sending = outbox.send(outputs)
        while f"waiting for readers of {SAMPLES}" not in caplog.text:
            await asyncio.sleep(0.01)
        assert not sending.done()
        assert outboxes.queued_bytes == size
        group = kafka.consumer(in_process_broker, GROUP)
        group.commit(offsets=[TopicPartition(SAMPLES, 0, 5)], asynchronous=False)
        await asyncio.wait_for(sending, PATIENCE_S)
        assert outboxes.queued_bytes == 0
        outboxes.close(PATIENCE_S)

    asyncio.run(run())
