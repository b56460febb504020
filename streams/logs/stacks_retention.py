"""How long Kafka keeps what is announced on icestream.stacks: as Kafka says, or a setting instead."""

import logging
from dataclasses import dataclass

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]

from icestream.kafka import clients
from icestream.times import DAY_NS
from icestream.topics import STACKS
from streams.settings import StreamsSettings

IN_PROCESS_BYTES = 5_000_000
"""What the in-process broker keeps of each partition."""
_TIMEOUT_S = 15.0
_PARTS_OF_A_DAY = (1, 2, 3, 4, 6, 8, 12, 24)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StacksRetention:
    """What Kafka keeps of a partition of icestream.stacks."""

    bytes: int | None = None  # None: no limit
    ns: int | None = None  # None: for ever

    def period_ns(self) -> int:
        """Returns how long an announcement counts: a day, or a part of it that is at most half of `ns`, but at least
        an hour. A stack is announced on each day of its use, because sinks delete by day."""
        if self.ns is None:
            return DAY_NS
        parts = next((parts for parts in _PARTS_OF_A_DAY if parts * self.ns >= 2 * DAY_NS), _PARTS_OF_A_DAY[-1])
        return DAY_NS // parts


def read_retention(settings: StreamsSettings) -> StacksRetention:
    """Asks Kafka. If it does not answer, or refuses, the log says so, and Kafka is taken to keep everything."""
    configured_bytes = settings.stacks_kept_mb * 1_000_000 or None
    try:
        with clients.admin_client(settings) as admin:
            if clients.is_in_process(admin, _TIMEOUT_S):
                return StacksRetention(configured_bytes or IN_PROCESS_BYTES)
            resource = ConfigResource(ResourceType.TOPIC, STACKS)
            config = admin.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource].result()
    except KafkaException as error:
        _log.warning("Kafka does not say how long it keeps %s: %s", STACKS, error.args[0].str())
        return StacksRetention(configured_bytes)
    size, age_ms = (_limit(config.get(name)) for name in ("retention.bytes", "retention.ms"))
    return StacksRetention(configured_bytes or size, None if age_ms is None else age_ms * 1_000_000)


def _limit(entry: ConfigEntry | None) -> int | None:
    """Returns a limit in Kafka's configuration; None for -1, which is no limit, and if the broker does not have it."""
    try:
        number = int(str(entry.value)) if entry is not None else -1
    except ValueError:
        return None
    return number if number > 0 else None
