"""Learns all names that icestream.stacks has, and from the API those that it has no longer."""

import contextlib
import time
from collections.abc import Collection

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from icestream.kafka import clients
from icestream.messages.checks import BadMessage
from icestream.messages.stack_names import LIMIT_BYTES, UNKNOWN_FRAME, StackNames
from icestream.messages.stacks import decode_stacks
from icestream.names_api import NamesApi
from icestream.settings import KafkaSettings
from icestream.topics import FLATTEN_GROUP, STACKS
from streams.flatten import metrics

_TIMEOUT_S = 15.0
_PARTITIONS_S = 10.0
"""Between two looks for partitions that were added."""


class NamesReader:
    """Reads from the beginning of the topic, in no group; commits nothing."""

    def __init__(self, settings: KafkaSettings, limit_bytes: int = LIMIT_BYTES, names_url: str = "") -> None:
        self.names = StackNames(limit_bytes)
        self._api = NamesApi(names_url, settings.kafka)
        self._missed: set[int] = set()  # stacks that were not known, or not as a whole, at the end of the last wait
        self._consumer = clients.consumer(settings, f"{FLATTEN_GROUP}.names", **{"enable.partition.eof": True})
        self._assigned: set[int] = set()
        self._behind: set[int] = set()  # partitions that were not read to their end yet
        self._look_at = 0.0
        self._look()

    def catch_up(self, deadline: float) -> bool:
        """Reads to the end of the topic, as far as `deadline` (time.monotonic()) permits.

        Returns whether it got there."""
        if time.monotonic() >= self._look_at:
            with contextlib.suppress(KafkaException):  # the next look may be answered
                self._look()
        while time.monotonic() < deadline and (self._read(0.1 if self._behind else 0.0) or self._behind):
            pass
        return not self._behind

    def wait_for(self, stack_ids: Collection[int], deadline: float) -> set[int]:
        """Asks the API for stacks that are not known, or not as a whole, and reads until all are known, but no longer
        than until `deadline` (time.monotonic()); returns those that are not known, or not as a whole. It does not wait
        again for those that the last call has waited for, nor for what is lacking in a stack."""
        self.catch_up(deadline)
        missing, torn = self._lacking(stack_ids)
        self._ask(missing | torn)
        missing, torn = self._lacking(missing | torn)
        awaited = missing - self._missed
        while awaited and time.monotonic() < deadline:
            self._read(0.1)
            awaited, _ = self._lacking(awaited)
        missing, torn = self._lacking(missing | torn)
        self._missed = missing | torn
        return self._missed

    def close(self) -> None:
        self._consumer.close()

    def _ask(self, stack_ids: set[int]) -> None:
        for announced in self._api.try_to_ask(stack_ids):
            self.names.learn(announced)
            metrics.ANSWERED.inc(len(announced.node_id))

    def _look(self) -> None:
        """Adds the partitions that are not assigned yet. Raises KafkaException."""
        self._look_at = time.monotonic() + _PARTITIONS_S
        partitions = self._consumer.list_topics(STACKS, timeout=_TIMEOUT_S).topics[STACKS].partitions
        if new := set(partitions) - self._assigned:
            self._consumer.incremental_assign([TopicPartition(STACKS, each, OFFSET_BEGINNING) for each in new])
            self._assigned |= new
            self._behind |= new

    def _lacking(self, stack_ids: Collection[int]) -> tuple[set[int], set[int]]:
        """Returns the stacks of which nothing is known, and those of which only a part is."""
        stacks = {each: self.names.stack(each) for each in stack_ids if each}
        torn = {each for each, frames in stacks.items() if UNKNOWN_FRAME in frames}
        return {each for each, frames in stacks.items() if not frames}, torn

    def _read(self, timeout_s: float) -> bool:
        """Reads on for at most this time; returns whether something came."""
        message = self._consumer.poll(timeout_s)
        if message is None:
            return False
        partition, error = message.partition() or 0, message.error()
        if error is None:
            self._behind.add(partition)
            with contextlib.suppress(BadMessage):  # sinks put it into icestream.dead-letters
                self.names.learn(decode_stacks(message.value()))
        elif error.code() == KafkaError._PARTITION_EOF:
            self._behind.discard(partition)
        return True
