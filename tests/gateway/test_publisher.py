"""Messages of many senders at once, and the end of a gateway that waits for Kafka."""

import asyncio

import pytest

from gateway.publisher import BatchPublisher
from gateway.settings import GatewaySettings
from icestream.settings import KafkaSettings
from icestream.topics import RAW
from tests.pipeline.reading import messages
from tests.ports import free_port
from tests.waiting import PATIENCE_S


def test_the_in_process_broker_gets_no_more_than_it_keeps(in_process_broker: KafkaSettings) -> None:
    settings = GatewaySettings(kafka=in_process_broker.kafka, kafka_in_process=True, gateway_ack_s=PATIENCE_S)
    publisher = BatchPublisher(settings)
    publisher._ack_s = 1.0  # for room; an acknowledgement has time, since what fails without it may be kept

    async def publish() -> list[BaseException | None]:
        sent = (publisher.publish(b"host", [bytes(300_000)]) for _ in range(20))
        return await asyncio.gather(*sent, return_exceptions=True)

    answers = asyncio.run(publish())
    publisher.close()
    kept = len(list(messages(settings, RAW)))
    assert kept == sum(answer is None for answer in answers) <= 3


def test_more_than_the_queue_holds_waits_for_room(
    in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.publisher._QUEUE_KB", 1000)
    settings = GatewaySettings(kafka=in_process_broker.kafka, gateway_ack_s=PATIENCE_S)
    publisher = BatchPublisher(settings)
    asyncio.run(publisher.publish(b"host", [bytes(300_000)] * 10))
    publisher.close()
    assert len(list(messages(settings, RAW))) == 10


def test_it_ends_while_messages_wait_for_kafka_and_their_senders_are_gone() -> None:
    publisher = BatchPublisher(GatewaySettings(kafka=f"127.0.0.1:{free_port()}", gateway_ack_s=0.3))

    async def give_up() -> None:
        publishing = asyncio.create_task(publisher.publish(b"host", [b"message"]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        publishing.cancel()

    asyncio.run(give_up())
    publisher.close()
