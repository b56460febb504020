"""Commits that nobody answers."""

import time

import pytest
from confluent_kafka import KafkaException, TopicPartition

from icestream.kafka.clients import commit, consumer
from icestream.settings import KafkaSettings
from icestream.topics import SAMPLES
from tests.ports import free_port
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow


def test_a_commit_that_nobody_answers_ends_and_the_reader_can_be_closed() -> None:
    reader = consumer(KafkaSettings(kafka=f"127.0.0.1:{free_port()}"), "nobody", log_level=0)
    begun = time.monotonic()
    for _ in range(2):
        with pytest.raises(KafkaException, match="no answer to a commit for 1 s"):
            commit(reader, [TopicPartition(SAMPLES, 0, 1)], timeout_s=1.0)
    reader.close()
    assert time.monotonic() - begun < PATIENCE_S
