"""Whether the live pipeline is done with a time range: a job in its way would be overtaken by it."""

import time

from confluent_kafka import KafkaException, TopicPartition

from icestream.kafka import consumer
from icestream.settings import KafkaSettings
from icestream.topics import CLICKHOUSE_GROUP, RAW, SAMPLES, STREAMS_GROUP

_ASK_S = 5.0
_SETTLED_S = 60
"""Samples published that long ago should be stored."""


def describe_lag(settings: KafkaSettings, end_unix_nano: int) -> str | None:
    """What of a range that ends there the pipeline has not stored yet, in words; None where nothing is known of."""
    if settings.kafka_in_process:  # it knows no offsets by time
        return None
    before_ms = end_unix_nano // 10**6
    try:
        behind = _behind(settings, STREAMS_GROUP, RAW, before_ms)
        if behind:
            return f"the stream processors are {behind} messages behind in this range: wait for them"
        behind = _behind(settings, CLICKHOUSE_GROUP, SAMPLES, int((time.time() - _SETTLED_S) * 1000))
        return f"the ClickHouse sink is {behind} messages behind: wait for it" if behind else None
    except KafkaException:  # no Kafka, nothing to come
        return None


def _behind(settings: KafkaSettings, group: str, topic: str, before_ms: int) -> int:
    """Messages older than that which the group has not committed; 0 for a group that never ran."""
    reader = consumer(settings, group, log_level=2)  # that there is no Kafka is no news
    try:
        metadata = reader.list_topics(topic, timeout=_ASK_S).topics[topic]
        asked = [TopicPartition(topic, number, max(before_ms, 0)) for number in metadata.partitions]
        if metadata.error is not None or not asked:
            return 0
        ends = reader.offsets_for_times(asked, timeout=_ASK_S)
        done = reader.committed([TopicPartition(topic, p.partition) for p in asked], timeout=_ASK_S)
        if all(p.offset < 0 for p in done):
            return 0
        total = 0
        for end, at in zip(ends, done, strict=True):
            low, high = reader.get_watermark_offsets(TopicPartition(topic, end.partition), timeout=_ASK_S)
            total += max((end.offset if end.offset >= 0 else high) - max(at.offset, low), 0)
        return total
    finally:
        reader.close()
