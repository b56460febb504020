import hashlib
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition
from prometheus_client import REGISTRY

from icestream.kafka import clients, dead_letters
from icestream.messages.checks import BadMessage
from icestream.settings import KafkaSettings
from icestream.topics import DEAD_LETTERS, MAX_MESSAGE_BYTES, RAW
from tests.waiting import PATIENCE_S


def letters(settings: KafkaSettings, count: int) -> list[tuple[bytes, bytes | None, dict[str, Any]]]:
    """Value, key and headers of all dead letters."""
    reader = clients.consumer(settings, "test")
    partitions = reader.list_topics(DEAD_LETTERS, timeout=300).topics[DEAD_LETTERS].partitions
    reader.assign([TopicPartition(DEAD_LETTERS, partition, 0) for partition in partitions])
    found = []
    while len(found) < count:
        message = reader.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
        found.append((message.value() or b"", message.key(), {k: v.decode() for k, v in message.headers() or []}))
    reader.close()
    return found


def test_a_consumed_message_is_kept_as_it_came_with_what_was_wrong(broker: KafkaSettings) -> None:
    sender = clients.producer(broker)
    sender.produce(RAW, b"\xff\x00", key=b"host", partition=1)
    sender.flush(PATIENCE_S)
    reader = clients.consumer(broker, "test")
    reader.assign([TopicPartition(RAW, 1, 0)])
    message = reader.poll(PATIENCE_S)
    assert message is not None
    dead_letters.send(sender, message, "a stage", ValueError("größer"))
    assert sender.flush(PATIENCE_S) == 0
    assert letters(broker, 1) == [
        (b"\xff\x00", b"host", {
            "icestream.error": "größer", "icestream.stage": "a stage", "icestream.topic": RAW,
            "icestream.partition": "1", "icestream.offset": str(message.offset()),
        })
    ]  # fmt: skip
    reader.close()


@pytest.mark.parametrize("size", [MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES + 1, 5_000_000])
def test_a_message_that_is_too_large_is_cut_and_says_so(in_process_broker: KafkaSettings, size: int) -> None:
    sender = clients.producer(in_process_broker)
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    delivered: list[object] = []
    dead_letters.send_parts(
        sender, RAW, 2, 7, "k" * 5000, data, "s", RuntimeError("\ud800" + "x" * 9999), lambda e, m: delivered.append(e)
    )
    assert sender.flush(PATIENCE_S) == 0
    assert delivered == [None]
    [(value, key, headers)] = letters(in_process_broker, 1)
    assert value == data[:MAX_MESSAGE_BYTES]
    assert key == b"k" * 1024
    assert len(headers["icestream.error"]) == 2000
    if size > MAX_MESSAGE_BYTES:
        assert headers["icestream.size"] == str(size)
        assert headers["icestream.sha256"] == hashlib.sha256(data).hexdigest()
    else:
        assert "icestream.size" not in headers


def test_a_message_without_anything_is_a_dead_letter_too(in_process_broker: KafkaSettings) -> None:
    sender = clients.producer(in_process_broker)
    dead_letters.send_parts(sender, RAW, 0, 0, None, None, "s", ValueError())
    sender.flush(PATIENCE_S)
    [(value, key, headers)] = letters(in_process_broker, 1)
    assert (value, key, headers["icestream.error"]) == (b"", None, "ValueError")


def not_published(reason: str) -> float:
    labels = {"stage": "s", "topic": RAW, "reason": reason}
    return REGISTRY.get_sample_value("icestream_dead_letters_not_published_total", labels) or 0.0


def test_of_a_flood_some_of_each_reason_are_published_and_the_others_are_counted(broker: KafkaSettings) -> None:
    sender, rate = clients.producer(broker), dead_letters.Rate(per_minute=5)
    for number in range(500):
        sender.produce(RAW, str(number).encode(), partition=0)
    sender.flush(PATIENCE_S)
    reader = clients.consumer(broker, "test")
    reader.assign([TopicPartition(RAW, 0, 0)])
    flood = []
    while len(flood) < 500:
        flood += [message for message in reader.consume(500, 10) if message.error() is None]
    reader.close()
    rare = BadMessage("host_id", "expected something else")
    before = not_published("end_unix_nano"), not_published("host_id")
    errors: list[Exception] = [BadMessage("end_unix_nano", f"got {i}") for i in range(499)]
    dead_letters.send_all(sender, rate, "s", list(zip(flood, [*errors, rare], strict=True)))
    found = [headers["icestream.error"] for _, _, headers in letters(broker, 6)]
    assert sorted(found) == sorted([*(f"end_unix_nano: got {i}" for i in range(5)), str(rare)])
    assert (not_published("end_unix_nano") - before[0], not_published("host_id") - before[1]) == (494, 0)


def test_a_dead_letter_that_kafka_refuses_is_counted_and_stops_nothing(in_process_broker: KafkaSettings) -> None:
    sender = clients.producer(in_process_broker)
    sender.produce(RAW, b"bad", partition=0)
    sender.flush(PATIENCE_S)
    reader = clients.consumer(in_process_broker, "test")
    reader.assign([TopicPartition(RAW, 0, 0)])
    message = reader.poll(PATIENCE_S)
    assert message is not None
    reader.close()
    before = not_published("ValueError")
    strict = clients.producer(in_process_broker, **{"message.max.bytes": 1000})
    error = ValueError("x" * 2000)
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        dead_letters.send(strict, message, "s", error)
    dead_letters.send_all(strict, dead_letters.Rate(10), "s", [(message, error)])
    assert not_published("ValueError") == before + 1


def test_what_kafka_did_not_take_counts_again(
    in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a short outage would use up what may be published of a range that is tried again."""
    monkeypatch.setattr(dead_letters, "_FLUSH_S", 0.1)
    sender = clients.producer(in_process_broker)
    count = 3
    for _ in range(count):
        sender.produce(RAW, b"x", partition=0)
    assert sender.flush(PATIENCE_S) == 0
    reader = clients.consumer(in_process_broker, "test")
    reader.assign([TopicPartition(RAW, 0, 0)])
    bad = [(message, ValueError("bad")) for message in reader.consume(count, PATIENCE_S)]
    reader.close()
    rate = dead_letters.Rate(count)
    nowhere = clients.producer(KafkaSettings(kafka="127.0.0.1:1"), log_level=0)
    for _ in range(3):
        with pytest.raises(KafkaException):
            dead_letters.send_all(nowhere, rate, "s", bad)
    dead_letters.send_all(sender, rate, "s", bad)
    assert len(letters(in_process_broker, count)) == count
