"""Runs a sink on a broker, and looks at what it did."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Message, TopicPartition

from icestream.clickhouse.client import Clients
from icestream.kafka.clients import MAY_REPEAT, consumer, producer
from icestream.settings import KafkaSettings
from icestream.topics import CLICKHOUSE_GROUP, SAMPLES
from sinks.clickhouse.disk_room import DiskRoom
from sinks.runner.range_writer import Rejected
from sinks.runner.ranges import MessageRange
from sinks.runner.runner import Runner
from tests.waiting import PATIENCE_S


def send(settings: KafkaSettings, topic: str, *values: bytes, partition: int = 0) -> None:
    sender = producer(settings, **MAY_REPEAT)  # an idempotent one needs half a second before its first message
    for value in values:
        sender.produce(topic, value, key=b"host-1", partition=partition)
    assert sender.flush(PATIENCE_S) == 0


@contextmanager
def running(
    settings: KafkaSettings,
    sink: Any,
    rejected: list[Message] | None = None,
    flush_s: float = 0.2,
    flush_bytes: int = 16_000_000,
    room: DiskRoom | None = None,
) -> Iterator[Runner]:
    stop = threading.Event()
    keep = rejected if rejected is not None else []

    def reject(letters: Sequence[Rejected]) -> None:
        keep.extend(message for message, _ in letters)

    started = Runner(sink, settings, reject, stop, flush_s, flush_bytes, room=room)
    thread = threading.Thread(target=started.run)
    thread.start()
    try:
        yield started
    finally:
        stop.set()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def number(clients: Clients, query: str) -> int:
    return int(clients.get().query(query).result_rows[0][0])


def committed(settings: KafkaSettings, topic: str, partition: int = 0, group: str = CLICKHOUSE_GROUP) -> int:
    reader = consumer(settings, group)
    offset = reader.committed([TopicPartition(topic, partition)], timeout=PATIENCE_S)[0].offset
    reader.close()
    return int(offset)


class Recording:
    """A sink that keeps what it was given, and fails when told to."""

    name, group, keeps_ranges = "recording", "recording", True
    topics: tuple[str, ...] = (SAMPLES,)

    def __init__(self, fail: bool = False, writes_together: bool = False) -> None:
        self.written: list[MessageRange[bytes]] = []
        self.at_once: list[int] = []
        self.fail = fail
        self.writes_together = writes_together
        self.away = False

    def check(self) -> None:
        if self.away:
            raise ConnectionError("connection refused")

    def decode(self, message: Message, cluster: str) -> bytes:
        return message.value() or b""

    def write(self, *ranges: MessageRange[bytes]) -> None:
        self.written += ranges
        self.at_once.append(len(ranges))
        if self.fail:
            raise OSError("no space left on device")

    def try_out(self, messages: Sequence[bytes], empty: bool) -> None: ...

    def failed(self) -> None: ...

    def idle(self) -> None: ...

    def close(self) -> None: ...
