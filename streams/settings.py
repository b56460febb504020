"""Settings of the stream processors."""

from dataclasses import dataclass

from icestream.settings import KafkaSettings, MessageSettings, setting
from icestream.topics import CLICKHOUSE_GROUP


@dataclass(frozen=True, kw_only=True)
class StreamsSettings(MessageSettings):
    """What `icestream streams` takes."""

    metrics_listen: str = setting("127.0.0.1:4061", "HOST:PORT of /metrics, /healthz and /readyz; empty: none")
    symbol_store: str = setting(
        "", "folder or URI (s3://, gs://) of the symbol store, the only place to read symbols from; empty: any place"
    )
    symbol_cache: str = setting("~/.cache/icestream/symcaches", "folder for SymCaches")
    symbol_cache_mb: int = setting(4096, "largest size of that folder in MB")
    attach_wait_s: float = setting(
        10.0, "seconds after which samples no longer wait for activity that Kafka has but does not deliver"
    )
    attach_memory_mb: int = setting(
        512, "memory in MB for samples and activity that are kept until the other side of the join has come"
    )
    stacks_kept_mb: int = setting(
        0,
        "MB that Kafka keeps of each partition of icestream.stacks: a stack in use is announced again before Kafka "
        "deletes it; 0: as Kafka is configured",
    )
    watchdog_s: float = setting(60.0, "seconds without progress, while lag grows, after which the process ends")
    dead_letters_per_minute: int = setting(
        60, "dead letters published a minute for each topic and reason; more of them are only counted"
    )
    hold_back_for: str = setting(
        CLICKHOUSE_GROUP,
        "with the in-process broker: groups that must keep up with stacks and samples, separated by commas; "
        "empty: none",
    )


@dataclass(frozen=True, kw_only=True)
class FlattenSettings(KafkaSettings):
    """What `icestream flatten` takes."""

    flatten_memory_mb: int = setting(
        1_000, "megabytes for the names of stacks; those that were neither announced nor used for longest are forgotten"
    )
    metrics_listen: str = setting("127.0.0.1:4065", "HOST:PORT of /metrics, /healthz and /readyz; empty: none")
