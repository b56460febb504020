"""Settings of what publishes raw data: the collector and the gateway."""

import dataclasses

from icestream.settings import KafkaSettings, setting
from icestream.topics import CLICKHOUSE_GROUP, STREAMS_GROUP


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProducerSettings(KafkaSettings):
    """Which groups hold a producer back while they have not read what it sent."""

    raw_readers: str = setting(STREAMS_GROUP, "with the in-process broker: groups that must keep up with icestream.raw")
    activity_readers: str = setting(
        f"{STREAMS_GROUP},{CLICKHOUSE_GROUP}",
        "with the in-process broker: groups that must keep up with icestream.activity",
    )
