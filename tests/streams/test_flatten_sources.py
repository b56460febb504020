"""What `icestream flatten` takes for repeated outputs of streams."""

import time
from contextlib import closing

import pytest

from icestream.kafka import clients
from icestream.settings import KafkaSettings
from icestream.topics import RAW
from icestream.v1.common_pb2 import BatchId, Source
from streams.flatten import sources
from streams.flatten.sources import Sources


def test_outputs_that_come_again_do_not_each_wait_for_a_kafka_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, "_KAFKA_S", 0.2)
    output = Source(cluster="cluster", topic=RAW, partition=0, offset=5)
    with closing(clients.consumer(KafkaSettings(kafka="127.0.0.1:1"), "nobody", log_level=2)) as consumer:
        read = Sources(consumer)
        assert read.is_new(0, output)
        begun = time.monotonic()
        for _ in range(3):
            read.ask_again()
            assert not any(read.is_new(0, output) for _ in range(100))
        assert time.monotonic() - begun < 20  # 60 s if each asked


def test_an_offset_that_was_given_to_another_batch_is_new_though_the_topic_is_as_long_as_before() -> None:
    """The topic was made anew, or Kafka has lost its last messages."""

    def output(offset: int, sequence: int) -> Source:
        batch = BatchId(collector="host", sequence=sequence)
        return Source(cluster="cluster", topic=RAW, partition=0, offset=offset, batch=batch)

    with closing(clients.consumer(KafkaSettings(kafka="127.0.0.1:1"), "nobody", log_level=2)) as consumer:
        read = Sources(consumer)
        assert all(read.is_new(0, output(offset, offset)) for offset in range(10))
        assert not any(read.is_new(0, output(offset, offset)) for offset in range(5, 10))
        again = [output(offset, 100 + offset) for offset in range(3, 12)]
        assert all(read.is_new(0, one) for one in again)
        assert not any(read.is_new(0, one) for one in again)
