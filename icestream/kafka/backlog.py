"""Counts what a producer sent and no reader has read yet, to hold it back before the broker drops unread messages.

The in-process broker keeps about 5 MB for each partition and silently drops the oldest messages beyond that. A producer
loses nothing if it asks `room` before every message, and waits or spools when there is none.
"""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from icestream.kafka.clients import committed_positions, consumer
from icestream.kafka.producer_settings import ProducerSettings
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW

_ASK_INTERVAL_S = 0.2
_ASK_TIMEOUT_S = 1.0
_LIMIT_BYTES = 3_000_000


class Backlog:
    """Unread bytes of one topic that this producer sent.

    A message counts until every one of `groups` has committed past it. A group that never committed has read nothing.
    Without groups nothing counts. `room` only counts delivered messages: flush before it, or use `reserve`.
    """

    def __init__(
        self, settings: KafkaSettings, topic: str, groups: Sequence[str], limit_bytes: int = _LIMIT_BYTES
    ) -> None:
        self.topic = topic
        self.limit_bytes = limit_bytes
        self._settings, self._groups = settings, groups
        self._readers: list[Consumer] = []  # one for each group, while the broker is asked: a client has five threads
        self._unread: dict[int, deque[tuple[int, int]]] = defaultdict(deque)  # partition -> (offset, size), in order
        self._bytes: dict[int, int] = defaultdict(int)
        self._in_flight = 0  # bytes that are reserved
        self._asked = float("-inf")
        self._lock = threading.Lock()

    def sent(self, partition: int, offset: int, size: int) -> None:
        """Counts a delivered message of `size` bytes; call it from the delivery report."""
        if not self._groups:
            return
        with self._lock:
            self._unread[partition].append((offset, size))
            self._bytes[partition] += size

    def room(self, size: int) -> bool:
        """Whether a message of `size` bytes may be sent to any partition.

        Asks the broker for committed offsets at most every 200 ms, and only when the last answer leaves no room. If the
        broker does not answer, nothing more counts as read. A message larger than the limit has room when all is read.
        """
        with self._lock:
            return self._has_room(size)

    def reserve(self, size: int) -> bool:
        """As `room`; where there is room, the message also takes it until `release`. For several messages in flight."""
        with self._lock:
            if not self._has_room(size):
                return False
            if self._groups:
                self._in_flight += size
            return True

    def release(self, size: int) -> None:
        """Ends what `reserve` began: the message is counted by `sent`, or it failed."""
        if self._groups:
            with self._lock:
                self._in_flight -= size

    def unread_bytes(self) -> int:
        """Unread bytes of all partitions, by the groups' last known committed offsets."""
        with self._lock:
            return sum(self._bytes.values())

    def close(self) -> None:
        with self._lock:
            self._close()

    def _has_room(self, size: int) -> bool:
        if self._fits(size):
            return True
        if time.monotonic() - self._asked < _ASK_INTERVAL_S:
            return False
        self._asked = time.monotonic()
        self._forget_read()
        fits = self._fits(size)
        if fits:
            self._close()
        return fits

    def _close(self) -> None:
        while self._readers:
            self._readers.pop().close()

    def _fits(self, size: int) -> bool:
        used = max(self._bytes.values(), default=0) + self._in_flight
        return used == 0 or used + size <= self.limit_bytes

    def _forget_read(self) -> None:
        waiting = [TopicPartition(self.topic, partition) for partition, messages in self._unread.items() if messages]
        if not self._readers:
            self._readers = [consumer(self._settings, group, log_level=0) for group in self._groups]
        try:
            answers = [committed_positions(reader, waiting, _ASK_TIMEOUT_S) for reader in self._readers]
        except KafkaException:
            return
        for positions in zip(*answers, strict=True):
            read_to = min(position.offset for position in positions)  # negative: a group that never committed
            partition = positions[0].partition
            messages = self._unread[partition]
            while messages and messages[0][0] < read_to:
                self._bytes[partition] -= messages.popleft()[1]


def backlogs(settings: ProducerSettings, limit_bytes: int = _LIMIT_BYTES) -> dict[str, Backlog]:
    """The topics of which a producer must count what is unread: none, except with the in-process broker."""
    if not settings.kafka_in_process:
        return {}
    readers = {RAW: settings.raw_readers, ACTIVITY: settings.activity_readers}
    return {
        topic: Backlog(settings, topic, [group for group in map(str.strip, groups.split(",")) if group], limit_bytes)
        for topic, groups in readers.items()
    }
