"""What is in a topic, for tests that look behind the API."""

from collections.abc import Iterator

from confluent_kafka import Message, TopicPartition

from icestream import kafka
from icestream.settings import KafkaSettings


def messages(settings: KafkaSettings, topic: str) -> Iterator[Message]:
    """Every message of a topic, until none comes for three seconds."""
    reader = kafka.consumer(settings, "test")
    partitions = reader.list_topics(topic, timeout=10).topics[topic].partitions
    reader.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    try:
        while (message := reader.poll(3.0)) is not None:
            if message.error() is None:
                yield message
    finally:
        reader.close()
