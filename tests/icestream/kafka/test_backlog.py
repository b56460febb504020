"""Holding back a producer, on the in-process broker."""

import time
from collections.abc import Callable

from confluent_kafka import Message, TopicPartition

from icestream.kafka.backlog import Backlog
from icestream.kafka.clients import consumer, producer
from icestream.settings import KafkaSettings
from tests.waiting import PATIENCE_S, wait_until

TOPIC = "icestream.raw"
GROUP = "readers"
MESSAGE = 500_000


def test_a_producer_that_asks_for_room_loses_nothing_to_the_in_process_broker(in_process_broker: KafkaSettings) -> None:
    """60 messages of 500 KB on one partition leave 10 readable when nobody asks."""
    backlog = Backlog(in_process_broker, TOPIC, [GROUP])
    sender = producer(in_process_broker, **{"compression.type": "none"})
    reader = consumer(in_process_broker, GROUP)
    reader.subscribe([TOPIC])
    read: list[int] = []
    sent = 0
    deadline = time.monotonic() + 300
    while len(read) < 60 and time.monotonic() < deadline:
        if sent < 60 and backlog.room(MESSAGE):
            sender.produce(TOPIC, key=b"host", value=sent.to_bytes(MESSAGE, "big"), on_delivery=reporter(backlog))
            sender.flush(PATIENCE_S)
            sent += 1
        elif (message := reader.poll(0.2)) is not None and message.error() is None:
            read.append(int.from_bytes(message.value() or b"", "big"))
            reader.commit(message, asynchronous=False)
    reader.close()
    backlog.close()
    assert read == list(range(60))


def test_there_is_no_room_beyond_the_limit_until_every_group_has_read(in_process_broker: KafkaSettings) -> None:
    backlog = Backlog(in_process_broker, TOPIC, ["one", "two"], limit_bytes=1000)
    backlog.sent(2, 0, 600)
    backlog.sent(2, 1, 300)
    assert backlog.room(100)
    assert not backlog.room(101)
    commit(in_process_broker, "one", 2, 2)
    assert not room_after_asking(backlog, 101)
    commit(in_process_broker, "two", 2, 1)
    wait_until(lambda: backlog.room(700))  # the broker's answer may take longer than it is waited for
    assert not room_after_asking(backlog, 701)
    assert backlog.unread_bytes() == 300
    backlog.close()


def test_a_message_larger_than_the_limit_may_go_when_nothing_is_unread(in_process_broker: KafkaSettings) -> None:
    backlog = Backlog(in_process_broker, TOPIC, [GROUP], limit_bytes=1000)
    assert backlog.room(5000)
    backlog.sent(0, 0, 1)
    assert not backlog.room(5000)
    backlog.close()


def test_the_fullest_partition_decides(in_process_broker: KafkaSettings) -> None:
    backlog = Backlog(in_process_broker, TOPIC, [GROUP], limit_bytes=1000)
    for partition in range(4):
        backlog.sent(partition, 0, 900)
    assert backlog.room(100)
    assert not backlog.room(101)
    backlog.close()


def test_messages_in_flight_take_their_room_until_they_are_released() -> None:
    backlog = Backlog(KafkaSettings(kafka="127.0.0.1:1"), TOPIC, [GROUP], limit_bytes=1000)
    assert backlog.reserve(600)
    assert backlog.reserve(400)
    assert not backlog.room(1)
    backlog.release(400)  # it failed
    backlog.sent(0, 0, 600)
    backlog.release(600)
    assert backlog.reserve(400)
    backlog.close()


def test_nobody_is_held_back_where_nobody_has_to_read(in_process_broker: KafkaSettings) -> None:
    backlog = Backlog(in_process_broker, TOPIC, [], limit_bytes=1000)
    backlog.sent(0, 0, 10_000)
    assert backlog.room(10_000)


def test_a_broker_that_does_not_answer_counts_as_nothing_read() -> None:
    backlog = Backlog(KafkaSettings(kafka="127.0.0.1:1"), TOPIC, [GROUP], limit_bytes=1000)
    backlog.sent(0, 0, 1000)
    started = time.monotonic()
    assert not backlog.room(1)
    assert time.monotonic() - started < 30
    backlog.close()


def reporter(backlog: Backlog) -> Callable[[object, Message], None]:
    def report(error: object, message: Message) -> None:
        assert error is None, error
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        backlog.sent(partition, offset, MESSAGE)

    return report


def room_after_asking(backlog: Backlog, size: int) -> bool:
    backlog.room(size)
    time.sleep(0.25)
    return backlog.room(size)


def commit(settings: KafkaSettings, group: str, partition: int, offset: int) -> None:
    client = consumer(settings, group)
    client.commit(offsets=[TopicPartition(TOPIC, partition, offset)], asynchronous=False)
    client.close()
