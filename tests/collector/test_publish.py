"""From the spool to Kafka: everything, in order, whatever dies in between."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from collector.frames import Message
from collector.publish import Publisher
from collector.settings import CollectorSettings
from collector.spool import Spool
from icestream.kafka import consumer
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW, STREAMS_GROUP
from standalone.broker import InProcessBroker


def collector_settings(broker: KafkaSettings, folder: Path, **more: object) -> CollectorSettings:
    return CollectorSettings(kafka=broker.kafka, spool=folder / "spool", **more)  # type: ignore[arg-type]


def started(publisher: Publisher) -> Publisher:
    publisher.start()
    return publisher


def window(number: int, size: int = 1000) -> list[Message]:
    value = number.to_bytes(4, "big") + bytes(size)
    return [Message(ACTIVITY, b"host", value), Message(RAW, b"host", value)]


@pytest.fixture
def reader(broker: KafkaSettings) -> Iterator[Consumer]:
    reading = consumer(broker, STREAMS_GROUP)
    reading.subscribe([RAW])
    yield reading
    reading.close()


def read(reading: Consumer, count: int, timeout_s: float = 20.0) -> list[int]:
    found: list[int] = []
    deadline = time.monotonic() + timeout_s
    while len(found) < count and time.monotonic() < deadline:
        message = reading.poll(0.2)
        if message is not None and message.error() is None:
            found.append(int.from_bytes((message.value() or b"")[:4], "big"))
            reading.commit(message, asynchronous=False)
    return found


def test_windows_arrive_in_order_and_leave_the_spool(broker: KafkaSettings, reader: Consumer, tmp_path: Path) -> None:
    settings = collector_settings(broker, tmp_path)
    spool = Spool(settings.spool, 1 << 20)
    publisher = started(Publisher(settings, spool))
    for number in range(20):
        publisher.publish(window(number))
    assert read(reader, 20) == list(range(20))
    assert publisher.close() == 0
    assert publisher.ready() is None
    spool.close()


def test_what_a_dead_collector_left_is_sent_by_the_next_one(
    broker: KafkaSettings, reader: Consumer, tmp_path: Path
) -> None:
    settings = collector_settings(broker, tmp_path)
    spool = Spool(settings.spool, 1 << 20)
    for number in range(5):
        spool.append(window(number))
    spool.close()
    spool = Spool(settings.spool, 1 << 20)
    publisher = started(Publisher(settings, spool))
    publisher.publish(window(5))
    assert read(reader, 6) == list(range(6))
    publisher.close()
    spool.close()


def test_a_broker_that_comes_later_gets_everything_in_order(tmp_path: Path) -> None:
    broker = InProcessBroker()
    port = broker.address
    settings = collector_settings(KafkaSettings(kafka="127.0.0.1:1"), tmp_path)
    spool = Spool(settings.spool, 1 << 20)
    publisher = started(Publisher(settings, spool))
    for number in range(10):
        publisher.publish(window(number))
    deadline = time.monotonic() + 10
    while publisher.ready() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert publisher.ready() is not None
    assert publisher.close(timeout_s=0.1) == 10
    publisher = started(Publisher(replace(settings, kafka=port), spool))
    reading = consumer(broker.settings(), STREAMS_GROUP)
    reading.subscribe([RAW])
    assert read(reading, 10) == list(range(10))
    assert publisher.close() == 0
    reading.close()
    spool.close()
    broker.close()


def test_a_message_that_the_broker_refuses_for_good_does_not_stop_the_others(
    broker: KafkaSettings, reader: Consumer, tmp_path: Path
) -> None:
    settings = collector_settings(broker, tmp_path)
    spool = Spool(settings.spool, 64 << 20)
    publisher = started(Publisher(settings, spool))
    publisher.publish(window(0))
    publisher.publish(window(1, size=2_000_000))
    publisher.publish(window(2))
    assert read(reader, 2) == [0, 2]
    assert publisher.close() == 0
    spool.close()


def test_with_the_in_process_broker_unread_windows_wait_in_the_spool(
    in_process_broker: KafkaSettings, tmp_path: Path
) -> None:
    settings = collector_settings(in_process_broker, tmp_path, kafka_in_process=True, activity_readers=STREAMS_GROUP)
    spool = Spool(settings.spool, 64 << 20)
    publisher = started(Publisher(settings, spool))
    for number in range(30):
        publisher.publish([Message(RAW, b"host", number.to_bytes(4, "big") + bytes(500_000))])
    time.sleep(2)
    assert 20 <= len(spool) < 30
    reading = consumer(in_process_broker, STREAMS_GROUP)
    reading.subscribe([RAW])
    assert read(reading, 30, timeout_s=40) == list(range(30))
    assert publisher.close() == 0
    reading.close()
    spool.close()


def test_after_an_error_that_ends_the_producer_everything_is_sent_by_a_new_one(
    broker: KafkaSettings, reader: Consumer, tmp_path: Path
) -> None:
    settings = collector_settings(broker, tmp_path)
    spool = Spool(settings.spool, 1 << 20)
    publisher = started(Publisher(settings, spool))
    for number in range(20):
        publisher.publish(window(number))
        if number == 10:
            publisher._fatal = True  # as the delivery report of a fatal error says
    found = read(reader, 20)
    while set(found) != set(range(20)):
        found += read(reader, 1)
    assert publisher.close() == 0
    spool.close()
