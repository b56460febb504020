"""Settings of the sinks."""

from dataclasses import dataclass

from icestream.settings import KafkaSettings, setting


@dataclass(frozen=True, kw_only=True)
class SinkSettings(KafkaSettings):
    """What `icestream sink`, `icestream migrate` and the jobs take."""

    clickhouse: str = setting(
        "http://default@127.0.0.1:8123/default",
        "ClickHouse: http://USER:PASSWORD@HOST:8123/DATABASE, or chdb:///FOLDER for the embedded engine",
    )
    parquet: str = setting("", "folder or URI (s3://, gs://, az://) of the Delta tables; empty: none are written")
    archive: str = setting("", "folder of the raw archive; empty: none is written")
    archive_days: int = setting(30, "days that the raw archive is kept; 0: for ever")
    symbol_store: str = setting(
        "", "folder or URI of the symbol store; symbols elsewhere are refused; empty: any place"
    )
    symbol_cache: str = setting("~/.cache/icestream/symcaches", "folder that SymCaches are kept in")
    flush_s: float = setting(1.0, "seconds that rows wait in the ClickHouse sink to be inserted together")
    parquet_flush_s: float = setting(60.0, "seconds that rows wait in the Parquet sink and messages in the archive")
    retention_days: int | None = setting(
        None, "days that migrate makes the tables keep; 0: for ever; not given: as it was (new tables: for ever)"
    )
    metrics_listen: str = setting("127.0.0.1:4063", "HOST:PORT of /metrics, /healthz and /readyz; empty: none")
