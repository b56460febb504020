"""Reads a topic more slowly than Kafka delivers it: `python -m tests.icestream.slow_consumer HOST:PORT TOPIC SECONDS`.

Prints how many messages it read, and by how many MB its memory grew at most.
"""

import re
import sys
import time
from pathlib import Path

from confluent_kafka import TopicPartition

from icestream.kafka import clients
from icestream.settings import KafkaSettings


def main(address: str, topic: str, seconds: float) -> None:
    reader = clients.consumer(KafkaSettings(kafka=address), "slow")
    partitions = reader.list_topics(topic, timeout=30).topics[topic].partitions
    before = memory_mb()
    reader.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    ends = time.monotonic() + seconds
    read = most = 0
    while time.monotonic() < ends:
        read += sum(message.error() is None for message in reader.consume(500, 0.1))
        most = max(most, memory_mb())
        time.sleep(0.1)
    print(read, most - before)


def memory_mb() -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) // 1024


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
