"""The in-process broker: the cluster that librdkafka carries for its own tests, kept alive inside a producer.

It speaks Kafka's protocol on a loopback port, so every client works as with a real one, but it lives in memory, keeps
about 5 MB a partition, drops the oldest messages beyond that whether they were read or not, and dies with this process
(docs/in-process-broker.md). `icestream.backlog` is how producers hold back before it drops something.
"""

import logging
from collections.abc import Iterable

from confluent_kafka import Producer

from icestream.settings import KafkaSettings
from icestream.topics import TOPICS

PARTITIONS = 4
"""What it gives every topic; there is no way to ask for another number."""

NAMES = tuple(topic.name for topic in TOPICS)

_TIMEOUT_S = 10.0


class InProcessBroker:
    """A broker on a free loopback port, from construction until `close`.

    `address` is HOST:PORT. `cluster_id` is another one each time, and offsets start at 0 again each time.
    """

    def __init__(self, topics: Iterable[str] = NAMES) -> None:
        self._holder: Producer | None = Producer(
            {"bootstrap.servers": "in-process", "test.mock.num.brokers": 1, "log_level": 4},
            logger=_quiet(),
        )
        metadata = self._holder.list_topics(timeout=_TIMEOUT_S)
        self.address = ",".join(f"{broker.host}:{broker.port}" for broker in metadata.brokers.values())
        self.cluster_id = str(metadata.cluster_id)
        for topic in topics:  # asked for, a topic exists
            self._holder.list_topics(topic, timeout=_TIMEOUT_S)

    def settings(self) -> KafkaSettings:
        """Settings of its clients."""
        return KafkaSettings(kafka=self.address, kafka_in_process=True)

    def close(self) -> None:
        """Ends it: every message is gone, its clients are disconnected."""
        self._holder = None


def _quiet() -> logging.Logger:
    """librdkafka announces at every start that its test cluster is on: no news here."""
    logger = logging.getLogger("icestream.broker")
    logger.setLevel(logging.ERROR)
    return logger
