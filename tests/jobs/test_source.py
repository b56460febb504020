"""What a replay reads from Kafka by time, and whether the live pipeline is done with it; on both brokers."""

import time

from confluent_kafka import TopicPartition

from icestream.kafka import consumer, producer
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW, STREAMS_GROUP
from jobs.pipeline_lag import describe_lag
from jobs.source import KafkaSource
from tests.pipeline.synthetic import WINDOW_NS, window

COUNT = 6


def publish(settings: KafkaSettings, start: int) -> list[bytes]:
    """Windows of one host, with the times that their messages would have had; their raw messages."""
    sender = producer(settings)
    made = [window(start, sequence) for sequence in range(1, COUNT + 1)]
    for i, one in enumerate(made):
        at = (start + (i + 1) * WINDOW_NS) // 10**6
        sender.produce(ACTIVITY, one.activity, key=b"host-0", timestamp=at)
        sender.produce(RAW, one.raw, key=b"host-0", timestamp=at)
    sender.produce(RAW, b"\xffgarbage", key=b"host-9", timestamp=start // 10**6)
    assert sender.flush(20) == 0
    return [one.raw for one in made]


def test_messages_of_a_range_are_found_in_order(broker: KafkaSettings) -> None:
    start = time.time_ns() // 10**9 * 10**9 - 3600 * 10**9
    sent = publish(broker, start)
    source = KafkaSource(broker)
    read = [m.value for m in source.read(RAW, start + WINDOW_NS, start + 3 * WINDOW_NS)]
    assert [value for value in read if value in sent] in (sent[1:3], sent[0:3])  # a window's end is a moment of it
    assert len(list(source.read(ACTIVITY, start, start + COUNT * WINDOW_NS))) == COUNT
    assert list(source.read(RAW, start + 100 * WINDOW_NS, start + 101 * WINDOW_NS)) == []


def test_a_range_that_the_stream_processors_have_not_passed_is_told(apache_kafka: KafkaSettings) -> None:
    start = time.time_ns() // 10**9 * 10**9 - 3600 * 10**9
    publish(apache_kafka, start)
    end = start + COUNT * WINDOW_NS + 1
    assert describe_lag(apache_kafka, end) is None  # nothing ever read it: no live pipeline to wait for
    found = next(iter(KafkaSource(apache_kafka).read(RAW, start + 10**9, end)))
    reader = consumer(apache_kafka, STREAMS_GROUP)
    for done, expected in ((found.offset + 2, "messages behind"), (found.offset + COUNT + 1, None)):
        place = TopicPartition(RAW, found.partition, done)
        reader.commit(offsets=[place], asynchronous=False)
        reader.commit(offsets=[TopicPartition(RAW, p, 1) for p in range(4) if p != found.partition], asynchronous=False)
        reason = describe_lag(apache_kafka, end)
        assert (reason is None) if expected is None else (reason is not None and expected in reason)
    reader.close()
