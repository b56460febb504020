"""What Kafka has acknowledged is there, from the first message to a new topic on."""

import time

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from icestream.kafka import clients
from icestream.settings import KafkaSettings

TOPICS, PARTITIONS, MESSAGES = 30, 4, 40


@pytest.mark.kafka
def test_nothing_is_lost_while_the_partitions_of_new_topics_become_ready(apache_kafka: KafkaSettings) -> None:
    """With several requests at a time, this failed in one run of a few."""
    topics = [f"new-{number}" for number in range(TOPICS)]
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = clients.producer(apache_kafka, **{"linger.ms": 0, "topic.metadata.refresh.fast.interval.ms": 10})
    admin = AdminClient(clients.client_config(apache_kafka))
    for made in admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS) for topic in topics]).values():
        made.result()
    for number in range(MESSAGES):
        for topic in topics:
            producer.produce(topic, b"message", partition=number % PARTITIONS, on_delivery=delivered)
        producer.poll(0)
        time.sleep(0.005)
    assert producer.flush(60) == 0
    assert failed == []
    reader = clients.consumer(apache_kafka, "test")
    assert {topic: count(reader, topic) for topic in topics} == dict.fromkeys(topics, MESSAGES)
    reader.close()
    for deleted in admin.delete_topics(topics).values():
        deleted.result()


def count(reader: Consumer, topic: str) -> int:
    """Messages of a topic, without transactions."""
    ends = (reader.get_watermark_offsets(TopicPartition(topic, n), timeout=300)[1] for n in range(PARTITIONS))
    return sum(ends)
