"""Settings of what publishes raw data: the collector and the gateway."""

import dataclasses

from icestream.settings import KafkaSettings, RequestLabelSettings, setting
from icestream.topics import CLICKHOUSE_GROUP, STREAMS_GROUP


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProducerSettings(KafkaSettings, RequestLabelSettings):
    """What limits them: consumer groups that they must not outrun, and the number of operations of a service."""

    raw_readers: str = setting(
        STREAMS_GROUP, "wait for these groups to keep up with icestream.raw, with the in-process broker"
    )
    activity_readers: str = setting(
        f"{STREAMS_GROUP},{CLICKHOUSE_GROUP}",
        "wait for these groups to keep up with icestream.activity, with the in-process broker",
    )
    most_operations: int = setting(
        1000, "keep so many operations of a service in a day; what comes after them is called [other operations]"
    )
