"""The topics, their configuration, and the consumer groups that read them."""

from dataclasses import dataclass

RAW = "icestream.raw"
ACTIVITY = "icestream.activity"
STACKS = "icestream.stacks"
SAMPLES = "icestream.samples"
SYMBOL_REQUESTS = "icestream.symbol-requests"
SYMBOLS = "icestream.symbols"
DEAD_LETTERS = "icestream.dead-letters"

STREAMS_GROUP = "icestream.streams"
CLICKHOUSE_GROUP = "icestream.sink.clickhouse"
PARQUET_GROUP = "icestream.sink.parquet"
ARCHIVE_GROUP = "icestream.archive"
RESOLVE_GROUP = "icestream.resolve"

MAX_MESSAGE_BYTES = 900_000
"""No message of icestream is larger, before compression. Larger windows are split into parts."""

DEFAULT_PROFILE_TYPE = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
OFF_CPU_PROFILE_TYPE = "off_cpu:off_cpu:nanoseconds:off_cpu:nanoseconds"

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
