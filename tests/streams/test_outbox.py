import asyncio
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition

from icestream import kafka
from icestream.settings import KafkaSettings
from icestream.topics import SAMPLES, STACKS
from streams.outbox import Outbox
from streams.position import Position
from streams.process import Outputs

GROUP = "somebody"


def test_the_future_is_done_when_all_is_acknowledged_and_the_position_travels_along(broker: KafkaSettings) -> None:
    async def run() -> None:
        outbox = Outbox(broker)
        outputs = Outputs(b"host", [b"stack"], [b"one", b"two"], position=Position(1, 2, 3, 4))
        await asyncio.wait_for(await outbox.send(outputs, 2), 60)
        outbox.close(1)

    asyncio.run(run())
    reader = kafka.consumer(broker, "test")
    reader.assign([TopicPartition(SAMPLES, 2, 0)])
    messages = [reader.poll(10) for _ in range(2)]
    assert [m.value() for m in messages if m] == [b"one", b"two"]
    assert [m.headers() for m in messages if m] == [[("icestream.position", b"1 2 3 4")]] * 2
    assert reader.get_watermark_offsets(TopicPartition(STACKS, 2), timeout=60)[1] == 1
    reader.close()


def test_a_message_that_kafka_refuses_is_an_error(in_process_broker: KafkaSettings) -> None:
    async def run() -> None:
        outbox = Outbox(in_process_broker)
        with pytest.raises(RuntimeError, match="did not take"):
            await asyncio.wait_for(await outbox.send(Outputs(b"k", [], [b"x"]), 99), 60)
        outbox.close(1)

    asyncio.run(run())


def test_with_the_in_process_broker_it_waits_until_the_readers_have_read(in_process_broker: KafkaSettings) -> None:
    size = 400_000
    outputs = Outputs(b"host", [], [bytes(size)])

    async def run() -> None:
        outbox = Outbox(replace(in_process_broker, kafka_in_process=True), [GROUP])
        for _ in range(7):  # 2.8 MB
            await (await outbox.send(outputs, 0))
        sending = asyncio.create_task(outbox.send(outputs, 0))
        await asyncio.sleep(0.5)
        assert not sending.done()
        assert outbox.held_back
        group = kafka.consumer(in_process_broker, GROUP)
        group.commit(offsets=[TopicPartition(SAMPLES, 0, 5)], asynchronous=False)
        await (await asyncio.wait_for(sending, 60))
        assert not outbox.held_back
        outbox.close(1)

    asyncio.run(run())
