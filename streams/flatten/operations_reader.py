"""Learns the operations of trace contexts from icestream.activity."""

import contextlib
import logging
import time
from collections.abc import Mapping

import numpy as np
from confluent_kafka import KafkaException, Message, TopicPartition

from icestream.kafka import clients
from icestream.messages.activity import ActivityColumns, decode_activity
from icestream.messages.checks import BadMessage
from icestream.process.byte_cache import ByteCache
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, FLATTEN_GROUP

_BYTES = 64_000_000
_OBJECTS_BYTES = 90
"""What a context and its operation take, beside what they hold."""
_AT_ONCE = 20
_KAFKA_S = 10.0
_BEFORE_MS = 300_000
"""A host's clock may be ahead of Kafka's by this much."""
_AFTER_MS = 60_000
"""Activity that is later than samples by this much can wait for later samples. So a backlog of samples does not need
the operations of all days at once."""

_log = logging.getLogger(__name__)


class OperationsReader:
    """Reads the partitions whose samples are published, around the times of these samples, in no group; commits
    nothing. Without Kafka's answer, operations are not known."""

    def __init__(self, settings: KafkaSettings, in_process: bool) -> None:
        self._in_process = in_process
        self._names = ByteCache[bytes, str](
            _BYTES, lambda context, operation: _OBJECTS_BYTES + len(context) + len(operation)
        )
        self._consumer = clients.consumer(settings, f"{FLATTEN_GROUP}.operations", log_level=2)
        self._next: dict[int, int] = {}  # partition -> offset
        self._problem = ""

    def find(self, context: bytes) -> str:
        """Returns the operation of a trace context of 24 bytes; "" if it is not known."""
        return self._names.get(context) or ""

    def read(self, times: Mapping[int, tuple[int, int]], deadline: float) -> None:
        """Reads what Kafka has now for samples of these partitions, no longer than until `deadline` (time.monotonic()).

        `times`: of the first and the last of these samples, Unix milliseconds.
        """
        try:
            self._read(times, deadline)
            self._set_problem("")
        except KafkaException as error:
            self._set_problem(error.args[0].str())

    def forget_positions(self) -> None:
        """Forgets how far partitions were read: the next samples decide where reading begins."""
        self._next.clear()

    def close(self) -> None:
        self._consumer.close()

    def _read(self, times: Mapping[int, tuple[int, int]], deadline: float) -> None:
        self._begin({partition: first for partition, (first, _) in times.items() if partition not in self._next})
        ends = {partition: self._end(partition) for partition in times}
        behind = {partition for partition, end in ends.items() if self._next[partition] < end}
        self._consumer.assign([TopicPartition(ACTIVITY, partition, self._next[partition]) for partition in behind])
        while behind and time.monotonic() < deadline:
            for message in self._consumer.consume(_AT_ONCE, timeout=0.1):
                partition = message.partition() or 0
                if message.error() is None and partition in behind and not self._learn(message, times[partition][1]):
                    behind.discard(partition)
            behind = {partition for partition in behind if self._next[partition] < ends[partition]}
        self._consumer.unassign()

    def _begin(self, first: Mapping[int, int]) -> None:
        """Finds out where to begin. `first`: the time of the first samples of each partition, Unix milliseconds."""
        if self._in_process:  # knows no offsets by time, and has only the newest messages
            self._next.update(dict.fromkeys(first, 0))
        elif first:
            wanted = [TopicPartition(ACTIVITY, each, max(0, time - _BEFORE_MS)) for each, time in first.items()]
            for found in self._consumer.offsets_for_times(wanted, timeout=_KAFKA_S):
                if found.error is not None:
                    raise KafkaException(found.error)
                self._next[found.partition] = found.offset if found.offset >= 0 else self._end(found.partition)

    def _end(self, partition: int) -> int:
        """Skips what Kafka has deleted; returns the offset behind the last message."""
        low, high = self._consumer.get_watermark_offsets(TopicPartition(ACTIVITY, partition), timeout=_KAFKA_S)
        self._next[partition] = max(self._next.get(partition, 0), low)
        return int(high)

    def _learn(self, message: Message, last_unix_milli: int) -> bool:
        """Learns a message, unless it is too late for samples up to this time; returns whether it did so."""
        with contextlib.suppress(BadMessage):  # streams put it into icestream.dead-letters
            activity = decode_activity(message.value())
            # By both clocks: one whose clock is far ahead must not hold up the others.
            if min(activity.complete_unix_nano // 10**6, message.timestamp()[1]) > last_unix_milli + _AFTER_MS:
                return False
            self._put(activity)
        self._next[message.partition() or 0] = (message.offset() or 0) + 1
        return True

    def _put(self, activity: ActivityColumns) -> None:
        for row in np.flatnonzero(activity.operation).tolist():
            self._names.put(activity.contexts[row].tobytes(), activity.strings[activity.operation[row]])

    def _set_problem(self, problem: str) -> None:
        """Logs a problem when it begins."""
        if problem and problem != self._problem:
            _log.warning("cannot read %s, so operations are not known: %s", ACTIVITY, problem)
        self._problem = problem
