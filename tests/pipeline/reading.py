"""What is in a topic, and what its readers have read, for tests that look behind the API."""

from collections.abc import Iterator, Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from icestream.kafka import clients
from icestream.settings import KafkaSettings
from tests.waiting import PATIENCE_S, wait_until


def messages(settings: KafkaSettings, topic: str) -> Iterator[Message]:
    """Every message that is in a topic now."""
    reader = clients.consumer(settings, "test", **{"enable.partition.eof": True})
    try:
        partitions = {place.partition for place, low, high in _watermarks(reader, topic) if high > low}
        reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        while partitions:
            message = reader.poll(PATIENCE_S)
            assert message is not None, f"{topic} cannot be read to its end"
            if (error := message.error()) is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                partitions.discard(message.partition() or 0)
    finally:
        reader.close()


def follow(settings: KafkaSettings, *topics: str) -> Consumer:
    """A consumer of everything that is in topics, and that will be. It is in no group: a member whose session ends on a
    busy machine reads again what it has not committed."""
    reader = clients.consumer(settings, "test")

    def numbers(topic: str) -> list[int]:
        return list(reader.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions)

    wait_until(lambda: all(numbers(topic) for topic in topics))
    reader.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic in topics for number in numbers(topic)])
    return reader


def lag(settings: KafkaSettings, group: str, topics: Sequence[str]) -> int:
    """Messages of these topics that a group has not committed yet, with the ends of transactions between them."""
    reader = clients.consumer(settings, group)
    try:
        places = [row for topic in topics for row in _watermarks(reader, topic)]
        committed = reader.committed([place for place, _, _ in places], timeout=PATIENCE_S)
    finally:
        reader.close()
    lags = {
        (to.topic, to.partition): (max(to.offset, low), high)
        for to, (_, low, high) in zip(committed, places, strict=True)
        if high > max(to.offset, low)
    }
    unread = clients.unread(settings, [TopicPartition(*key, first) for key, (first, _) in lags.items()])
    return sum(lags[place.topic, place.partition][1] - place.offset for place in unread)


_NO_LEADER = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._UNKNOWN_PARTITION)


def _watermarks(reader: Consumer, topic: str) -> list[tuple[TopicPartition, int, int]]:
    """Each partition with its first offset, and the one after its last."""
    partitions = reader.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
    places = [TopicPartition(topic, partition) for partition in partitions]
    return [(place, *_ends(reader, place)) for place in places]


def _ends(reader: Consumer, place: TopicPartition) -> tuple[int, int]:
    """The first offset of a partition, and the one after its last. Waits for the leader of one that was just made."""
    found: list[tuple[int, int]] = []

    def is_led() -> bool:
        try:
            found.append(reader.get_watermark_offsets(place, timeout=PATIENCE_S))
        except KafkaException as error:
            if error.args[0].code() not in _NO_LEADER:
                raise
            reader.list_topics(place.topic, timeout=PATIENCE_S)  # else it may remember that there is none
        return bool(found)

    wait_until(is_led)
    return found[0]
