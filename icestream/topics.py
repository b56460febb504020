"""The topics, their configuration, and the consumer groups that read them.

Nothing else names a topic, a group or a transactional ID: so the prefix is before each of them, and installations with
different prefixes share a Kafka without seeing each other.
"""

import os
from dataclasses import dataclass

PREFIX = os.environ.get("ICESTREAM_KAFKA_PREFIX", "")
"""The setting `kafka_prefix`. Names are constants of a process, so it is read once; `icestream.cli` puts the flag
there."""

RAW = f"{PREFIX}icestream.raw"
ACTIVITY = f"{PREFIX}icestream.activity"
STACKS = f"{PREFIX}icestream.stacks"
SAMPLES = f"{PREFIX}icestream.samples"
SYMBOL_REQUESTS = f"{PREFIX}icestream.symbol-requests"
SYMBOLS = f"{PREFIX}icestream.symbols"
DEAD_LETTERS = f"{PREFIX}icestream.dead-letters"
FLAT = f"{PREFIX}icestream.flat"

STREAMS_GROUP = f"{PREFIX}icestream.streams"
CLICKHOUSE_GROUP = f"{PREFIX}icestream.sink.clickhouse"
LAKE_GROUP = f"{PREFIX}icestream.sink.lake"
ARCHIVE_GROUP = f"{PREFIX}icestream.archive"
RESOLVE_GROUP = f"{PREFIX}icestream.resolve"
COLLECTOR_GROUP = f"{PREFIX}icestream.collector"
"""With a host ID behind it, of one collector."""
GATEWAY_PROFILES_GROUP = f"{PREFIX}icestream.gateway.profiles"
GATEWAY_SPANS_GROUP = f"{PREFIX}icestream.gateway.spans"
REPLAY_GROUP = f"{PREFIX}icestream.replay"
FLATTEN_GROUP = f"{PREFIX}icestream.flatten"
UNREAD_GROUP = f"{PREFIX}icestream.unread"
TAIL_GROUP = f"{PREFIX}icestream.tail"

MAX_MESSAGE_BYTES = 900_000
"""No message of icestream is larger, before compression. Larger windows are split into parts."""

DEFAULT_PROFILE_TYPE = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
OFF_CPU_PROFILE_TYPE = "off_cpu:off_cpu:nanoseconds:off_cpu:nanoseconds"
RUN_QUEUE = "[run queue]"
"""The innermost function of off-CPU samples of threads that could run, but had no CPU."""

TIMESTAMP_TYPE = "LogAppendTime"
"""What timestamps of messages are: icestream.messages.plausible compares the times in messages with them."""

_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True)
class Topic:
    name: str
    retention_ms: int
    per_host: bool
    """Keyed by host ID. These topics have the same number of partitions and the same partitioner, so that one worker
    reads both sides of a join."""

    def config(self, min_insync_replicas: int) -> dict[str, str]:
        """What the topic is made with. A message is acknowledged once that many replicas have it."""
        return {
            "retention.ms": str(self.retention_ms),
            "cleanup.policy": "delete",
            "compression.type": "producer",
            # A timestamp is when Kafka got a message. With that of the sender, a host whose clock is wrong would decide
            # which of its times are plausible, when Kafka deletes its messages, and whether Kafka takes them at all.
            "message.timestamp.type": TIMESTAMP_TYPE,
            "min.insync.replicas": str(min_insync_replicas),
        }


TOPICS = (
    Topic(RAW, 7 * _DAY_MS, per_host=True),
    Topic(ACTIVITY, 7 * _DAY_MS, per_host=True),
    Topic(STACKS, 7 * _DAY_MS, per_host=True),
    Topic(SAMPLES, 3 * _DAY_MS, per_host=True),
    Topic(SYMBOL_REQUESTS, _DAY_MS, per_host=False),
    Topic(SYMBOLS, _DAY_MS, per_host=False),
    Topic(DEAD_LETTERS, 14 * _DAY_MS, per_host=False),
)

OPTIONAL_TOPICS = (Topic(FLAT, 3 * _DAY_MS, per_host=True),)
"""Topics that are made with the others, and that only a command needs which not everybody runs."""
