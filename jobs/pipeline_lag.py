"""The lag of the live pipeline: a job has to wait until the pipeline has stored the job's time range."""

import time

from confluent_kafka import KafkaException, TopicPartition

from icestream.kafka import consumer, unread
from icestream.settings import KafkaSettings
from icestream.topics import CLICKHOUSE_GROUP, RAW, SAMPLES, STREAMS_GROUP

_ANSWER_TIMEOUT_S = 5.0
_SETTLED_S = 60
"""By this age, a published sample should be stored."""


def describe_lag(settings: KafkaSettings, end_unix_nano: int) -> str | None:
    """Returns what the pipeline has not stored yet of a range that ends there, in words.

    Returns None if it has stored everything, and where the lag is unknown: without Kafka, and with the in-process
    broker, which cannot look up offsets by time.
    """
    if settings.kafka_in_process:
        return None
    try:
        lag = _lag(settings, STREAMS_GROUP, RAW, end_unix_nano // 10**6)
        if lag:
            return f"the stream processors have a lag of {lag} messages in this range: wait for them"
        lag = _lag(settings, CLICKHOUSE_GROUP, SAMPLES, int((time.time() - _SETTLED_S) * 1000))
        return f"the ClickHouse sink has a lag of {lag} messages: wait for it" if lag else None
    except KafkaException:
        return None


def _lag(settings: KafkaSettings, group: str, topic: str, before_unix_milli: int) -> int:
    """Returns how many messages older than that the group has not committed; 0 for a group that never ran."""
    reader = consumer(settings, group, log_level=2)  # does not log that there is no Kafka
    try:
        metadata = reader.list_topics(topic, timeout=_ANSWER_TIMEOUT_S).topics[topic]
        times = [TopicPartition(topic, number, max(before_unix_milli, 0)) for number in metadata.partitions]
        if metadata.error is not None or not times:
            return 0
        ends = reader.offsets_for_times(times, timeout=_ANSWER_TIMEOUT_S)
        commits = reader.committed([TopicPartition(topic, p.partition) for p in times], timeout=_ANSWER_TIMEOUT_S)
        if all(commit.offset < 0 for commit in commits):
            return 0
        lags: dict[int, int] = {}
        waiting = []
        for end, commit in zip(ends, commits, strict=True):
            low, high = reader.get_watermark_offsets(TopicPartition(topic, end.partition), timeout=_ANSWER_TIMEOUT_S)
            first = max(commit.offset, low)
            lags[end.partition] = (end.offset if end.offset >= 0 else high) - first
            if lags[end.partition] > 0:
                waiting.append(TopicPartition(topic, end.partition, first))
        return sum(lags[place.partition] for place in unread(settings, waiting))
    finally:
        reader.close()
