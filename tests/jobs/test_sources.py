"""What a job reads from Kafka by time, and the lag of the live pipeline; on both brokers."""

import time
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from icestream.kafka import consumer, producer
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW, STREAMS_GROUP
from jobs.pipeline_lag import describe_lag
from jobs.sources import ArchiveSource, KafkaSource, SourceError, choose
from jobs.time_range import TimeRange
from sinks.settings import StorageSettings
from tests.data.windows import WINDOW_NS, window

COUNT = 6


def publish(settings: KafkaSettings, start_unix_nano: int) -> list[bytes]:
    """Windows of one host, with the times that their messages would have had; their raw messages."""
    sender = producer(settings)
    windows = [window(start_unix_nano, sequence) for sequence in range(1, COUNT + 1)]
    for i, one in enumerate(windows):
        at = (start_unix_nano + (i + 1) * WINDOW_NS) // 10**6
        sender.produce(ACTIVITY, one.activity, key=b"host-0", timestamp=at)
        sender.produce(RAW, one.raw, key=b"host-0", timestamp=at)
    sender.produce(RAW, b"\xffgarbage", key=b"host-9", timestamp=start_unix_nano // 10**6)
    assert sender.flush(20) == 0
    return [one.raw for one in windows]


def test_messages_of_a_range_are_found_in_order(broker: KafkaSettings) -> None:
    start = time.time_ns() // 10**9 * 10**9 - 3600 * 10**9
    sent = publish(broker, start)
    source = KafkaSource(broker)
    read = [m.value for m in source.read(RAW, TimeRange(start + WINDOW_NS, start + 3 * WINDOW_NS))]
    assert [value for value in read if value in sent] in (sent[1:3], sent[0:3])  # a window's end is a moment of it
    assert len(list(source.read(ACTIVITY, TimeRange(start, start + COUNT * WINDOW_NS)))) == COUNT
    assert list(source.read(RAW, TimeRange(start + 100 * WINDOW_NS, start + 101 * WINDOW_NS))) == []


def test_the_lag_of_the_stream_processors_in_a_range_is_described(apache_kafka: KafkaSettings) -> None:
    start = time.time_ns() // 10**9 * 10**9 - 3600 * 10**9
    publish(apache_kafka, start)
    end = start + COUNT * WINDOW_NS + 1
    assert describe_lag(apache_kafka, end) is None  # nothing ever read it: no live pipeline to wait for
    message = next(iter(KafkaSource(apache_kafka).read(RAW, TimeRange(start + 10**9, end))))
    reader = consumer(apache_kafka, STREAMS_GROUP)
    for committed, expected in ((message.offset + 2, "a lag of"), (message.offset + COUNT + 1, None)):
        position = TopicPartition(RAW, message.partition, committed)
        reader.commit(offsets=[position], asynchronous=False)
        reader.commit(
            offsets=[TopicPartition(RAW, p, 1) for p in range(4) if p != message.partition], asynchronous=False
        )
        reason = describe_lag(apache_kafka, end)
        assert (reason is None) if expected is None else (reason is not None and expected in reason)
    reader.close()


def test_the_source_is_the_archive_where_it_reaches_back_far_enough(tmp_path: Path) -> None:
    hour = tmp_path / "icestream.raw" / "date=2026-01-31" / "hour=10"
    hour.mkdir(parents=True)
    ten = 1_769_853_600 * 10**9
    settings = StorageSettings()
    assert isinstance(choose("auto", settings, str(tmp_path), ten), ArchiveSource)
    assert isinstance(choose("auto", settings, str(tmp_path), ten - 1), KafkaSource)
    assert isinstance(choose("archive", settings, str(tmp_path), ten - 1), ArchiveSource)
    assert isinstance(choose("kafka", settings, str(tmp_path), ten), KafkaSource)
    with pytest.raises(SourceError, match="no archive"):
        choose("archive", settings, "", ten)
