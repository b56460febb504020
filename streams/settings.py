"""Settings of the stream processors."""

from dataclasses import dataclass

from icestream.settings import KafkaSettings, setting
from icestream.topics import CLICKHOUSE_GROUP


@dataclass(frozen=True, kw_only=True)
class StreamsSettings(KafkaSettings):
    metrics_listen: str = setting("127.0.0.1:4061", 'where /metrics, /healthz and /readyz are served; "" for nowhere')
    symbol_store: str = setting("", "folder or URI (s3://, gs://) that SymCaches are read from; none: anywhere")
    symbol_cache: str = setting("~/.cache/icestream/symcaches", "folder that SymCaches are kept in")
    symbol_cache_mb: int = setting(4096, "megabytes of SymCaches to keep")
    attach_wait_s: float = setting(2.0, "seconds that a batch waits for activity that its collector promised")
    watchdog_s: float = setting(60.0, "seconds without progress, while lag grows, after which the process ends")
    hold_back_for: str = setting(
        CLICKHOUSE_GROUP, "with the in-process broker: groups, by commas, that must have read before more is sent"
    )
