"""From the spool to Kafka: everything, in order, whatever dies in between."""

import errno
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from collector import metrics
from collector.delivery import publisher as publisher_module
from collector.delivery.message_log import Message
from collector.delivery.publisher import SpoolPublisher
from collector.delivery.spool import Spool, SpooledWindow
from collector.settings import CollectorSettings
from icestream.commands.topics import create
from icestream.kafka.clients import client_config, consumer, producer
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, DEFAULT_PROFILE_TYPE, RAW, STREAMS_GROUP
from icestream.v1.common_pb2 import BatchId
from icestream.v1.raw_pb2 import RawBatch
from standalone.supervisor.in_process_broker import InProcessBroker
from standalone.supervisor.local_kafka import LocalKafka
from tests.memory import resident_bytes
from tests.pipeline.reading import follow
from tests.waiting import PATIENCE_S, wait_until


def collector_settings(broker: KafkaSettings, folder: Path, **more: object) -> CollectorSettings:
    return CollectorSettings(kafka=broker.kafka, spool=folder / "spool", **more)  # type: ignore[arg-type]


def started(publisher: SpoolPublisher) -> SpoolPublisher:
    publisher.start()
    return publisher


def window(number: int, size: int = 1000) -> list[Message]:
    value = number.to_bytes(4, "big") + bytes(size)
    return [Message(ACTIVITY, b"host", value), Message(RAW, b"host", value)]


def filled(settings: CollectorSettings, windows: int) -> Spool:
    spool = Spool(settings.spool, 1 << 20)
    for number in range(windows):
        spool.append(window(number))
    return spool


@pytest.fixture
def reader(broker: KafkaSettings) -> Iterator[Consumer]:
    # The in-process broker's publishers wait for this group. In Apache Kafka, which tests share, it may still have
    # members of a test before, and then takes no commits of others.
    reading = consumer(broker, STREAMS_GROUP if broker.kafka_in_process else "test_publisher")
    partitions = reading.list_topics(RAW, timeout=300).topics[RAW].partitions
    reading.assign([TopicPartition(RAW, partition, 0) for partition in partitions])  # a group takes 3 s to form
    yield reading
    reading.close()


def read(reading: Consumer, count: int, timeout_s: float = PATIENCE_S) -> list[int]:
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
    publisher = started(SpoolPublisher(settings, spool))
    for number in range(20):
        publisher.append(window(number))
    assert read(reader, 20) == list(range(20))
    assert publisher.close(PATIENCE_S) == 0
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
    publisher = started(SpoolPublisher(settings, spool))
    publisher.append(window(5))
    assert read(reader, 6) == list(range(6))
    publisher.close()
    spool.close()


def test_a_broker_that_comes_later_gets_everything_in_order(tmp_path: Path) -> None:
    broker = InProcessBroker()
    port = broker.address
    settings = collector_settings(KafkaSettings(kafka="127.0.0.1:1"), tmp_path)
    spool = Spool(settings.spool, 1 << 20)
    publisher = started(SpoolPublisher(settings, spool))
    for number in range(10):
        publisher.append(window(number))
    wait_until(lambda: publisher.ready() is not None)
    assert publisher.close(timeout_s=0.1) == 10
    publisher = started(SpoolPublisher(replace(settings, kafka=port), spool))
    reading = consumer(broker.settings(), STREAMS_GROUP)
    reading.subscribe([RAW])
    assert read(reading, 10) == list(range(10))
    assert publisher.close(PATIENCE_S) == 0
    reading.close()
    spool.close()
    broker.close()


def test_while_the_broker_is_away_a_small_spool_keeps_the_newest_windows(tmp_path: Path) -> None:
    settings = collector_settings(KafkaSettings(kafka="127.0.0.1:1"), tmp_path, spool_limit_mb=1)
    spool = Spool(settings.spool, 1 << 20)
    publisher = started(SpoolPublisher(settings, spool))
    for number in range(60):
        publisher.append([Message(RAW, b"host", number.to_bytes(4, "big") + bytes(100_000))])
        time.sleep(0.01)  # it takes what it may into flight
    kept = [int.from_bytes(spool.read(entry)[0].value[:4], "big") for entry in list(spool._entries.values())]
    assert kept[-4:] == [56, 57, 58, 59]
    assert kept[0] == 0  # in flight
    assert spool.bytes <= 1 << 20
    assert spool.dropped == 60 - len(kept)
    assert publisher.close(timeout_s=0.1) == len(kept)
    spool.close()


def test_a_message_that_the_broker_refuses_for_good_does_not_stop_the_others(
    broker: KafkaSettings, reader: Consumer, tmp_path: Path
) -> None:
    settings = collector_settings(broker, tmp_path)
    spool = Spool(settings.spool, 64 << 20)
    publisher = started(SpoolPublisher(settings, spool))
    publisher.append(window(0))
    publisher.append(window(1, size=2_000_000))
    publisher.append(window(2))
    assert read(reader, 2) == [0, 2]
    assert publisher.close(PATIENCE_S) == 0
    spool.close()


def is_refused(settings: KafkaSettings, size: int) -> bool:
    """Whether Kafka takes no message of raw with so many bytes."""
    errors: list[object] = []
    sender = producer(settings)
    sender.produce(RAW, os.urandom(size), on_delivery=lambda error, message: errors.append(error))
    sender.flush(PATIENCE_S)
    return errors[0] is not None


def test_windows_that_are_in_one_request_with_one_that_is_refused_arrive(
    apache_kafka: KafkaSettings, tmp_path: Path
) -> None:
    """The broker takes smaller requests than the collector makes of windows that have waited."""
    change = ConfigResource(ConfigResource.Type.TOPIC, RAW)
    change.add_incremental_config(
        ConfigEntry("max.message.bytes", "100000", incremental_operation=AlterConfigOpType.SET)
    )
    admin = AdminClient(client_config(apache_kafka))
    (altered,) = admin.incremental_alter_configs([change]).values()
    altered.result()
    wait_until(lambda: is_refused(apache_kafka, 200_000))  # the controller knows the change first
    reading = consumer(apache_kafka, "test_publisher")
    partitions = [
        TopicPartition(RAW, number) for number in reading.list_topics(RAW, timeout=300).topics[RAW].partitions
    ]
    ends = [reading.get_watermark_offsets(partition, timeout=300)[1] for partition in partitions]
    settings = collector_settings(apache_kafka, tmp_path)
    spool = Spool(settings.spool, 64 << 20)
    for number in range(20):
        size = 200_000 if number == 7 else 30_000
        spool.append([Message(RAW, b"host", number.to_bytes(4, "big") + os.urandom(size))])
    dropped = metrics.DROPPED._value.get()
    publisher = started(SpoolPublisher(settings, spool))
    reading.assign([TopicPartition(RAW, at.partition, end) for at, end in zip(partitions, ends, strict=True)])
    found = read(reading, 19)
    assert publisher.close(PATIENCE_S) == 0
    assert sorted(set(found)) == [number for number in range(20) if number != 7]
    assert metrics.DROPPED._value.get() - dropped == 1
    reading.close()
    spool.close()


def test_with_the_in_process_broker_unread_windows_wait_in_the_spool(
    in_process_broker: KafkaSettings, tmp_path: Path
) -> None:
    settings = collector_settings(in_process_broker, tmp_path, kafka_in_process=True, activity_readers=STREAMS_GROUP)
    spool = Spool(settings.spool, 64 << 20)
    publisher = started(SpoolPublisher(settings, spool))
    for number in range(30):
        publisher.append([Message(RAW, b"host", number.to_bytes(4, "big") + bytes(500_000))])
    wait_until(lambda: len(spool) < 30)
    time.sleep(1)  # one that did not wait would send all of them
    assert 20 <= len(spool) < 30
    reading = consumer(in_process_broker, STREAMS_GROUP)
    reading.subscribe([RAW])
    assert read(reading, 30, timeout_s=PATIENCE_S) == list(range(30))
    assert publisher.close(PATIENCE_S) == 0
    reading.close()
    spool.close()


def test_after_an_error_that_ends_the_producer_everything_is_sent_by_a_new_one(
    broker: KafkaSettings, reader: Consumer, tmp_path: Path
) -> None:
    settings = collector_settings(broker, tmp_path)
    spool = Spool(settings.spool, 1 << 20)
    publisher = started(SpoolPublisher(settings, spool))
    for number in range(20):
        publisher.append(window(number))
        if number == 10:
            publisher._fatal = True  # as the delivery report of a fatal error says
    found = read(reader, 20)
    while set(found) != set(range(20)):
        found += read(reader, 1)
    assert publisher.close(PATIENCE_S) == 0
    spool.close()


@pytest.mark.kafka
def test_an_hour_without_kafka_costs_the_spool_and_what_it_could_not_keep_is_told(
    local_kafka: LocalKafka, tmp_path: Path
) -> None:
    """A Kafka goes and comes back; meanwhile an hour of windows, and the spool has room for some minutes."""
    limit = 2 << 20
    kafka = LocalKafka(tmp_path / "kafka")
    kafka.start()
    create(kafka.settings(), partitions=1, replication=1)
    settings = collector_settings(kafka.settings(), tmp_path)
    spool = Spool(settings.spool, limit)
    publisher = started(SpoolPublisher(settings, spool))
    sampled = 0

    def publish(number: int) -> None:
        nonlocal sampled
        sampled += 100 + number
        batch = RawBatch(
            id=BatchId(sequence=number), host_id="h" * 10_000, profile_type=DEFAULT_PROFILE_TYPE,
            dropped_samples=spool.take_dropped_samples(), sample_offset_us=range(100 + number),
        )  # fmt: skip
        publisher.append([Message(RAW, b"host", batch.SerializeToString())])

    for number in range(10):
        publish(number)
    wait_until(lambda: len(spool) == 0)
    kafka.close()
    memory = resident_bytes()
    for number in range(10, 730):
        publish(number)
        time.sleep(0.002)
    assert resident_bytes() - memory < 16 << 20
    assert sum(path.stat().st_size for path in settings.spool.iterdir()) <= limit + (4 << 20) + 20_000
    assert spool.dropped > 100
    again = LocalKafka(tmp_path / "kafka", port=int(kafka.address.rpartition(":")[2]))
    assert again.address == kafka.address
    again.start()
    wait_until(lambda: len(spool) == 0)
    publish(730)
    wait_until(lambda: len(spool) == 0)
    reading = follow(again.settings(), RAW)
    found: dict[int, RawBatch] = {}
    while 730 not in found:
        message = reading.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
        batch = RawBatch.FromString(message.value() or b"")
        found[batch.id.sequence] = batch
    reading.close()
    assert list(found) == sorted(found)
    assert list(found)[:10] == list(range(10))
    assert len(found) + spool.dropped == 731
    assert sum(len(batch.sample_offset_us) + batch.dropped_samples for batch in found.values()) == sampled
    assert publisher.close(PATIENCE_S) == 0
    spool.close()
    again.close()


def test_damaged_windows_are_dropped_and_counted_and_the_others_arrive(
    broker: KafkaSettings, reader: Consumer, tmp_path: Path
) -> None:
    settings = collector_settings(broker, tmp_path)
    spool = filled(settings, 4)
    files = sorted(settings.spool.glob("*.messages"))
    files[0].write_bytes(b"garbage")
    files[2].write_bytes(files[2].read_bytes()[:-100])
    before = metrics.DROPPED._value.get()
    publisher = started(SpoolPublisher(settings, spool))
    assert read(reader, 2) == [1, 3]  # of the third the activity alone is whole
    assert metrics.DROPPED._value.get() - before == 1
    assert publisher.close(PATIENCE_S) == 0
    spool.close()


def test_a_window_that_cannot_be_read_for_a_while_is_not_lost(
    broker: KafkaSettings, reader: Consumer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "_RETRY_S", 0.05)
    monkeypatch.setattr(publisher_module, "_IDLE_S", 0.05)
    settings = collector_settings(broker, tmp_path)
    spool = filled(settings, 3)
    read_entry, failures = spool.read, iter([OSError(errno.EMFILE, "Too many open files")] * 5)

    def read_later(entry: SpooledWindow) -> list[Message]:
        for error in failures:
            raise error
        return read_entry(entry)

    monkeypatch.setattr(spool, "read", read_later)
    publisher = started(SpoolPublisher(settings, spool))
    assert read(reader, 3) == [0, 1, 2]
    assert next(failures, None) is None
    assert publisher.close(PATIENCE_S) == 0
    spool.close()


def test_a_window_that_is_never_read_holds_up_the_others_for_a_time_only(
    broker: KafkaSettings, reader: Consumer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "_RETRY_S", 0.05)
    monkeypatch.setattr(publisher_module, "_IDLE_S", 0.05)
    monkeypatch.setattr(publisher_module, "_MOST_READS", 3)
    settings = collector_settings(broker, tmp_path)
    spool = filled(settings, 3)
    first = next(settings.spool.glob("*.messages"), Path())
    first.unlink()
    first.symlink_to(first.name)  # ELOOP
    publisher = started(SpoolPublisher(settings, spool))
    assert len(read(reader, 2)) == 2
    assert publisher.close(PATIENCE_S) == 0
    spool.close()


def test_a_collector_that_makes_no_windows_is_not_ready(tmp_path: Path) -> None:
    settings = CollectorSettings(kafka="127.0.0.1:1", spool=tmp_path / "spool")
    publisher = started(SpoolPublisher(settings, Spool(settings.spool, 1 << 20)))
    publisher._error = None
    publisher._appended -= 100 * settings.interval
    assert "no window was made for" in str(publisher.ready())
    publisher.append(window(1))
    assert "no window was made for" not in str(publisher.ready())
    publisher.close(0.0)


def test_a_directory_that_goes_away_is_said_once_and_windows_arrive_from_memory(
    broker: KafkaSettings, reader: Consumer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = collector_settings(broker, tmp_path)
    spool = Spool(settings.spool, 1 << 20)
    publisher = started(SpoolPublisher(settings, spool))
    shutil.rmtree(settings.spool)
    for number in range(5):
        publisher.append(window(number))
    assert read(reader, 5) == list(range(5))
    wait_until(lambda: len(spool) == 0)
    assert publisher.close(PATIENCE_S) == 0
    said = [record.getMessage() for record in caplog.records if "spool" in record.getMessage()]
    assert len(said) == 1
    assert "was removed" in said[0]
    assert "wait in memory" in said[0]
    spool.close()
