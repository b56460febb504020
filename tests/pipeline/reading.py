"""What is in a topic, and what its readers have read, for tests that look behind the API."""

from collections.abc import Iterator, Sequence

from confluent_kafka import Consumer, Message, TopicPartition

from icestream import kafka
from icestream.settings import KafkaSettings
from tests.waiting import PATIENCE_S


def messages(settings: KafkaSettings, topic: str) -> Iterator[Message]:
    """Every message that is in a topic now."""
    reader = kafka.consumer(settings, "test")
    try:
        ends = {place.partition: (low, high) for place, low, high in _watermarks(reader, topic) if high > low}
        reader.assign([TopicPartition(topic, partition, low) for partition, (low, _) in ends.items()])
        while ends:
            message = reader.poll(PATIENCE_S)
            assert message is not None, f"{topic} cannot be read to its end"
            if message.error() is None:
                yield message
                partition = message.partition() or 0
                if (message.offset() or 0) + 1 >= ends[partition][1]:
                    reader.incremental_unassign([TopicPartition(topic, partition)])
                    del ends[partition]
    finally:
        reader.close()


def lag(settings: KafkaSettings, group: str, topics: Sequence[str]) -> int:
    """Messages of these topics that a group has not committed yet."""
    reader = kafka.consumer(settings, group)
    try:
        places = [row for topic in topics for row in _watermarks(reader, topic)]
        committed = reader.committed([place for place, _, _ in places], timeout=PATIENCE_S)
        return sum(high - max(to.offset, low) for to, (_, low, high) in zip(committed, places, strict=True))
    finally:
        reader.close()


def _watermarks(reader: Consumer, topic: str) -> list[tuple[TopicPartition, int, int]]:
    """Each partition with its first offset, and the one after its last."""
    partitions = reader.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
    places = [TopicPartition(topic, partition) for partition in partitions]
    return [(place, *reader.get_watermark_offsets(place, timeout=PATIENCE_S)) for place in places]
