"""Brokers that tests take away: librdkafka's mock cluster, as the in-process broker is, by its functions in C."""

import ctypes
from collections.abc import Iterable
from pathlib import Path

from icestream.settings import KafkaSettings
from standalone.supervisor.in_process_broker import PARTITIONS


class Brokers:
    """Some brokers, numbered from 1, with topics, until `close`."""

    def __init__(self, topics: Iterable[str], count: int) -> None:
        maps = Path("/proc/self/maps").read_text().split()
        self._library = ctypes.CDLL(next(word for word in maps if "librdkafka" in word))  # that of our clients
        for name in ("new", "mock_cluster_new"):
            getattr(self._library, f"rd_kafka_{name}").restype = ctypes.c_void_p
        self._library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        none = ctypes.c_void_p()
        self._producer = ctypes.c_void_p(self._library.rd_kafka_new(0, none, none, ctypes.c_size_t()))
        self._cluster = ctypes.c_void_p(self._library.rd_kafka_mock_cluster_new(self._producer, count))
        for topic in topics:
            self._call("topic_create", topic.encode(), PARTITIONS, 1)
        addresses = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster)
        self.settings = KafkaSettings(kafka=addresses.decode())

    def set_leader(self, topic: str, partition: int, broker: int) -> None:
        """-1: it has none."""
        self._call("partition_set_leader", topic.encode(), partition, broker)

    def set_coordinator(self, group: str, broker: int) -> None:
        self._call("coordinator_set", b"group", group.encode(), broker)

    def set_down(self, broker: int) -> None:
        """Closes its connections, and takes no more."""
        self._call("broker_set_down", broker)

    def set_up(self, broker: int) -> None:
        self._call("broker_set_up", broker)

    def close(self) -> None:
        self._call("cluster_destroy")
        self._library.rd_kafka_destroy(self._producer)

    def _call(self, name: str, *arguments: bytes | int) -> None:
        error = getattr(self._library, f"rd_kafka_mock_{name}")(self._cluster, *arguments)
        assert not error or name == "cluster_destroy", (name, error)
