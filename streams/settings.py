"""Settings of the stream processors."""

from dataclasses import dataclass

from icestream.settings import KafkaSettings, MessageSettings, NamesSettings, setting
from icestream.topics import CLICKHOUSE_GROUP


@dataclass(frozen=True, kw_only=True)
class StreamsSettings(MessageSettings):
    """What `icestream streams` takes."""

    metrics_listen: str = setting(
        "127.0.0.1:4061", "serve /metrics, /healthz and /readyz at this HOST:PORT; empty: none"
    )
    symbol_store: str = setting(
        "", "read symbols only from this folder or URI (s3://, gs://) of the symbol store; empty: from any place"
    )
    symbol_cache: str = setting("~/.cache/icestream/symcaches", "keep SymCaches in this folder")
    symbol_cache_mb: int = setting(4096, "keep that folder below so many MB")
    attach_wait_s: float = setting(
        10.0, "wait at most so many seconds for activity that Kafka has but does not deliver"
    )
    attach_memory_mb: int = setting(
        512, "keep at most so many MB of samples and activity until the other side of the join has come"
    )
    stacks_kept_mb: int = setting(
        0,
        "expect Kafka to keep so many MB of each partition of icestream.stacks: a stack in use is "
        "announced again before Kafka deletes it; 0: as Kafka is configured",
    )
    watchdog_s: float = setting(60.0, "end the process after so many seconds without progress while lag grows")
    dead_letters_per_minute: int = setting(
        60, "publish at most so many dead letters a minute for each topic and reason; more of them are only counted"
    )
    hold_back_for: str = setting(
        CLICKHOUSE_GROUP,
        "wait for these groups to keep up with stacks and samples, with the in-process broker, separated "
        "by commas; empty: none",
    )


@dataclass(frozen=True, kw_only=True)
class FlattenSettings(KafkaSettings, NamesSettings):
    """What `icestream flatten` takes."""

    flatten_memory_mb: int = setting(
        1_000,
        "keep at most so many megabytes of names of stacks; those that were neither announced nor used "
        "for longest are forgotten",
    )
    metrics_listen: str = setting(
        "127.0.0.1:4065", "serve /metrics, /healthz and /readyz at this HOST:PORT; empty: none"
    )
