"""Changes the logs of a Kafka behind the backs of its clients, as crashes, mistakes and backups do."""

import shutil
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewPartitions,
    NewTopic,
)

from icestream.commands.topics import create
from icestream.kafka.clients import admin_client, consumer
from icestream.settings import KafkaSettings
from standalone.supervisor.child_process import terminate
from standalone.supervisor.in_process_broker import PARTITIONS
from standalone.supervisor.local_kafka import LocalKafka
from tests.ports import free_port
from tests.waiting import PATIENCE_S, wait_until


def make_anew(settings: KafkaSettings, *topics: str, partitions: int = PARTITIONS) -> None:
    """Deletes topics and makes them again, empty."""
    from tests.conftest import delete_topics  # which imports this file

    delete_topics(settings, topics)
    create(settings, partitions=partitions, replication=1)


def make_anew_at_once(settings: KafkaSettings, *topics: str) -> None:
    """As `make_anew`, within a moment: no connection breaks."""
    with admin_client(settings) as admin:
        for topic, deletion in admin.delete_topics(list(topics)).items():
            deletion.result(PATIENCE_S)
            wait_until(lambda topic=topic: _made(admin, topic))


def _made(admin: AdminClient, topic: str) -> bool:
    try:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(PATIENCE_S)
    except KafkaException:  # it is still there
        return False
    return True


def add_partitions(settings: KafkaSettings, count: int, *topics: str) -> None:
    """Topics have `count` partitions from now on, which is more than before."""
    with admin_client(settings) as admin:
        for creation in admin.create_partitions([NewPartitions(topic, count) for topic in topics]).values():
            creation.result(PATIENCE_S)


class Changing(LocalKafka):
    """An Apache Kafka whose logs are changed while it is stopped."""

    def __init__(self, data: Path) -> None:
        super().__init__(data, port=free_port())
        self._data = data

    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @contextmanager
    def stopped(self) -> Iterator[Path]:
        """Stops it in an orderly way, so that its folder has all that it has acknowledged; starts it again."""
        assert self.process is not None
        terminate(self.process, 30)
        yield self._data
        self.start()


def log_ends(settings: KafkaSettings, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Returns the end offset of each partition."""
    reader = consumer(settings, "test", log_level=2)
    try:
        return {
            (topic, number): reader.get_watermark_offsets(TopicPartition(topic, number), timeout=PATIENCE_S)[1]
            for topic, number in partitions
        }
    finally:
        reader.close()


def lose_tail(data: Path, topic: str, partition: int, offset: int) -> None:
    """Takes the messages from `offset` on away from a stopped Kafka, as a crash of its machine may."""
    folder = data / "log" / f"{topic}-{partition}"
    for segment in sorted(folder.glob("*.log")):
        if int(segment.stem) >= offset:
            for file in folder.glob(f"{segment.stem}.*"):
                file.unlink()
        else:
            _cut(segment, offset)
            for index in folder.glob(f"{segment.stem}.*index"):
                index.unlink()
    for snapshot in folder.glob("*.snapshot"):
        snapshot.unlink()
    (data / "log" / ".kafka_cleanshutdown").unlink(missing_ok=True)  # so that it looks at its logs


def _cut(segment: Path, offset: int) -> None:
    """Cuts a segment before the batch that has a message of this offset or a later one.

    A batch begins with its first offset (8 bytes) and the length of what follows (4 bytes); its last offset, relative
    to the first one, is at byte 23: https://kafka.apache.org/documentation/#recordbatch
    """
    content = segment.read_bytes()
    at = 0
    while at < len(content):
        first, length = struct.unpack_from(">qi", content, at)
        (last,) = struct.unpack_from(">i", content, at + 23)
        if first + last >= offset:
            break
        at += 12 + length
    segment.write_bytes(content[:at])


def copy(data: Path, aside: Path) -> None:
    """Copies the folder of a stopped Kafka."""
    shutil.copytree(data / "log", aside)


def put_back(data: Path, aside: Path) -> None:
    """Puts the folder of a stopped Kafka back to a copy."""
    shutil.rmtree(data / "log")
    shutil.copytree(aside, data / "log")
