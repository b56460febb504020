"""The in-process broker: the mock cluster that librdkafka has for its own tests, kept alive by a producer.

It speaks Kafka's protocol on a loopback port, so every client works with it. But it keeps messages in memory, about
5 MB for each partition; it drops the oldest ones beyond that, read or unread; and it ends with its process
(docs/in-process-broker.md). `icestream.kafka.backlog` makes producers wait before it drops unread messages.
"""

import logging
import signal
import subprocess
import sys
from collections.abc import Iterable

from confluent_kafka import Producer

from icestream.settings import KafkaSettings
from icestream.topics import OPTIONAL_TOPICS, TOPICS
from standalone.supervisor.account import Account
from standalone.supervisor.child_process import spawn

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


def start_process(user: Account | None) -> tuple["subprocess.Popen[bytes]", KafkaSettings]:
    """Runs a broker in a process of its own, as `user` if one is given, and returns the settings of its clients.

    A damaged request ends it, or does worse, and everybody on the machine can send one: so it is not in a process that
    must go on, or that has rights. Main thread only (see `spawn`). Raises OSError.
    """
    process = spawn([sys.executable, "-m", __name__], output=subprocess.PIPE, user=user)
    assert process.stdout is not None
    address = process.stdout.readline().decode().strip()
    if not address:
        raise ChildProcessError(f"the in-process broker ended with exit code {process.wait()}")
    return process, KafkaSettings(kafka=address, kafka_in_process=True)


def _quiet() -> logging.Logger:
    """Returns a logger without librdkafka's warning, at every start, that its mock cluster is enabled."""
    logger = logging.getLogger("icestream.broker")
    logger.setLevel(logging.ERROR)
    return logger


if __name__ == "__main__":
    running = InProcessBroker()
    print(running.address, flush=True)
    signal.pause()
