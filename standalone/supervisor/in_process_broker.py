"""The in-process broker: the mock cluster that librdkafka has for its own tests, kept alive by a producer.

It speaks Kafka's protocol on a loopback port, so every client works with it. But it keeps messages in memory, about
5 MB for each partition; it drops the oldest ones beyond that, read or unread; and it ends with this process
(docs/in-process-broker.md). `icestream.backlog` makes producers wait before it drops unread messages.
"""

import logging
from collections.abc import Iterable

from confluent_kafka import Producer

from icestream.settings import KafkaSettings
from icestream.topics import OPTIONAL_TOPICS, TOPICS

PARTITIONS = 4
"""The number of partitions of every topic; librdkafka offers no other."""

NAMES = tuple(topic.name for topic in (*TOPICS, *OPTIONAL_TOPICS))

_TIMEOUT_S = 10.0


class InProcessBroker:
    """A broker on a free loopback port, from construction until `close`.

    `address` is HOST:PORT. Each broker has a new `cluster_id` and offsets from 0.
    """

    def __init__(self, topics: Iterable[str] = NAMES) -> None:
        self._holder: Producer | None = Producer(
            {"bootstrap.servers": "in-process", "test.mock.num.brokers": 1, "log_level": 4},
            logger=_quiet(),
        )
        metadata = self._holder.list_topics(timeout=_TIMEOUT_S)
        self.address = ",".join(f"{broker.host}:{broker.port}" for broker in metadata.brokers.values())
        self.cluster_id = str(metadata.cluster_id)
        for topic in topics:  # a request for its metadata creates the topic
            self._holder.list_topics(topic, timeout=_TIMEOUT_S)

    def settings(self) -> KafkaSettings:
        """Returns the settings of its clients."""
        return KafkaSettings(kafka=self.address, kafka_in_process=True)

    def close(self) -> None:
        """Ends the broker: all messages are lost, and its clients are disconnected."""
        self._holder = None


def _quiet() -> logging.Logger:
    """Returns a logger without librdkafka's warning, at every start, that its mock cluster is enabled."""
    logger = logging.getLogger("icestream.broker")
    logger.setLevel(logging.ERROR)
    return logger
