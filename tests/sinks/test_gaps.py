"""Which missing offsets a sink counts as lost messages."""

import os
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from prometheus_client import REGISTRY

from icestream.kafka import clients
from icestream.settings import KafkaSettings
from icestream.topics import RAW
from sinks.archive.archive import ArchiveSink
from sinks.runner.assignment import Assignment
from tests.waiting import PATIENCE_S


def gaps() -> float:
    return REGISTRY.get_sample_value("icestream_sinks_gaps_total", {"sink": "archive", "topic": RAW}) or 0


def test_messages_that_the_broker_dropped_are_counted(in_process_broker: KafkaSettings, tmp_path: Path) -> None:
    before = gaps()
    sender = clients.producer(in_process_broker)
    reader = clients.consumer(in_process_broker, "test")
    assignment = Assignment(ArchiveSink(tmp_path, 1))

    def read() -> int:
        message = reader.poll(PATIENCE_S)
        assert message is not None
        assignment.add(reader, message)
        return message.offset() or 0

    sender.produce(RAW, b"x", partition=0)
    assert sender.flush(PATIENCE_S) == 0
    reader.assign([TopicPartition(RAW, 0, 0)])
    assert read() == 0
    reader.pause([TopicPartition(RAW, 0)])
    for _ in range(30):  # the broker keeps about 5 MB
        sender.produce(RAW, os.urandom(500_000), partition=0)
        assert sender.flush(PATIENCE_S) == 0
    reader.resume([TopicPartition(RAW, 0)])
    first = read()
    assert first > 1
    assert gaps() - before == first - 1


@pytest.mark.kafka
def test_ends_of_transactions_are_not_lost_messages(apache_kafka: KafkaSettings, tmp_path: Path) -> None:
    before = gaps()
    sender = clients.producer(apache_kafka, **{"transactional.id": "test"})
    sender.init_transactions(PATIENCE_S)
    for commit in (True, False, True):
        sender.begin_transaction()
        sender.produce(RAW, b"x", partition=0)
        if commit:
            sender.commit_transaction(PATIENCE_S)
        else:
            assert sender.flush(PATIENCE_S) == 0
            sender.abort_transaction(PATIENCE_S)
    reader = clients.consumer(apache_kafka, "test")
    reader.assign([TopicPartition(RAW, 0, 0)])
    assignment = Assignment(ArchiveSink(tmp_path, 1))
    offsets = []
    for _ in range(2):
        message = reader.poll(PATIENCE_S)
        assert message is not None
        assignment.add(reader, message)
        offsets.append(message.offset())
    assert offsets == [0, 4]
    assert gaps() == before
    assert [p.offset for p in clients.unread(apache_kafka, [TopicPartition(RAW, 0, at) for at in (4,)])] == [4]
    assert clients.unread(apache_kafka, [TopicPartition(RAW, 0, 5), TopicPartition(RAW, 1, 0)]) == []
