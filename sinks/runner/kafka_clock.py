"""The time by which old rows and files are deleted: Kafka's. The clock of this machine may be wrong by weeks."""

import logging
import time
from collections.abc import Callable, Iterable

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from icestream.kafka.clients import admin_client
from icestream.kafka.readiness import Partition
from icestream.settings import KafkaSettings

log = logging.getLogger(__name__)

Now = Callable[[], float | None]
"""Returns the time by which something is deleted, Unix seconds; None: it is not known yet, so nothing is."""
_WARN_S = 86_400.0
_ANSWER_S = 10.0


class KafkaClock:
    """Kafka's time: the newest timestamp of a message that this process knows of, and the time since it knows that.

    So time goes on when no messages come. Where it is wrong, it is behind Kafka's clock, and rows and files go later.
    All sinks of a process share one.
    """

    def __init__(self) -> None:
        self._ahead_s = float("-inf")
        """By how much Kafka's clock is ahead of the monotonic one, Unix seconds."""
        self._warned = False

    def advance(self, timestamp_ms: int) -> None:
        """Notes the timestamp of a message that Kafka has; below 1: it has none."""
        if timestamp_ms > 0:
            self._ahead_s = max(self._ahead_s, timestamp_ms / 1000 - time.monotonic())

    def now(self) -> float | None:
        """Returns Kafka's time, or this machine's if that is earlier; None if no message is known."""
        if self._ahead_s == float("-inf"):
            return None
        own, kafkas = time.time(), self._ahead_s + time.monotonic()
        if own - kafkas > _WARN_S and not self._warned:
            self._warned = True
            log.warning(
                "the newest message in Kafka is %.1f days old by the clock of this machine: old rows and files"
                " are deleted by Kafka's time",
                (own - kafkas) / 86_400,
            )
        return min(own, kafkas)


def newest_timestamp_ms(settings: KafkaSettings, partitions: Iterable[Partition]) -> int:
    """Asks Kafka for the newest timestamp of its messages, read or not; below 1: there are none. Raises KafkaException,
    also where Kafka is older than 3.0 and cannot tell."""
    newest = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
    wanted = {TopicPartition(*partition): newest for partition in partitions}
    with admin_client(settings) as client:
        answers = client.list_offsets(wanted, request_timeout=_ANSWER_S) if wanted else {}
        return max((answer.result().timestamp for answer in answers.values()), default=0)
