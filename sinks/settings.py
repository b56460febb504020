"""Settings of the sinks, and of whatever else works on what they have stored."""

from dataclasses import dataclass

from icestream.settings import MessageSettings, Settings, setting


@dataclass(frozen=True)
class RollupDays:
    """For how many days rollups are kept, by level; 0: for ever."""

    minute: int = 30
    hour: int = 180
    day: int = 1095


@dataclass(frozen=True, kw_only=True)
class StorageSettings(MessageSettings):
    """Where stored rows, messages and symbols are: for sinks and jobs."""

    clickhouse: str = setting(
        "http://default@127.0.0.1:8123/default",
        "ClickHouse: http://USER:PASSWORD@HOST:8123/DATABASE, or chdb:///FOLDER for the embedded engine",
    )
    archive: str = setting("", "folder or URI (s3://, gs://, az://) of the raw archive; empty: write none")
    parquet: str = setting("", "folder or URI (s3://, gs://, az://) of the Delta tables; empty: write none")
    keep_free_mb: int = setting(
        1000,
        "MB that sinks and jobs leave free on the disks of the embedded ClickHouse, of --archive and of --parquet: "
        "with less, they write nothing and wait",
    )
    kafka_timeout_s: float = setting(5.0, "seconds that a job waits for an answer of Kafka")
    symbol_store: str = setting(
        "", "folder or URI (s3://, gs://) of the symbol store, the only place to read symbols from; empty: any place"
    )
    symbol_cache: str = setting("~/.cache/icestream/symcaches", "folder for SymCaches")


@dataclass(frozen=True, kw_only=True)
class LakeSettings(Settings):
    """What `icestream lake` takes."""

    parquet: str = setting("", "folder or URI (s3://, gs://, az://) of the Delta tables")


@dataclass(frozen=True, kw_only=True)
class SinkSettings(StorageSettings):
    """What `icestream sink` and `icestream migrate` take."""

    parquet_days: int = setting(0, "days to keep rows in the Delta tables; 0: for ever; their files go a week later")
    archive_days: int = setting(30, "days to keep the raw archive; 0: for ever")
    dead_letters_per_minute: int = setting(
        60, "dead letters published a minute for each topic and reason; more of them are only counted"
    )
    flush_s: float = setting(
        1.0,
        "seconds that the ClickHouse sink collects rows before it inserts them; a process with more than 12 partitions "
        "takes longer, so that it inserts at most 12 ranges a second",
    )
    parquet_flush_s: float = setting(
        60.0, "seconds that the Parquet sink and the archive collect rows before they write them"
    )
    cluster: str = setting(
        "",
        "ClickHouse cluster: `icestream migrate` makes replicated tables on its hosts, and Distributed ones if it has "
        "several shards; empty: unchanged (new tables: on one server)",
    )
    retention_days: int | None = setting(
        None,
        "days after which tables drop rows, except for rollups, set by `icestream migrate`; 0: never; empty: unchanged "
        "(new tables: 14)",
    )
    request_days: int = setting(
        3,
        "days to keep every request; of older days, operations with over 10,000 requests a day keep the 1 % with the "
        "most CPU, the 1 % that took longest, and one in a hundred; 0: as long as other rows",
    )
    rollup_minutes_days: int = setting(
        30, "days to keep rollups by minute, set by each `icestream migrate`; 0: for ever"
    )
    rollup_hours_days: int = setting(180, "days to keep rollups by hour, set by each `icestream migrate`; 0: for ever")
    rollup_days_days: int = setting(1095, "days to keep rollups by day, set by each `icestream migrate`; 0: for ever")
    insert_tokens: int | None = setting(
        None,
        "how many inserts each table recognises when they come again, set by `icestream migrate`: 10000 for each "
        "process with a ClickHouse sink; empty: unchanged (new tables: 10000)",
    )
    metrics_listen: str = setting("127.0.0.1:4063", "HOST:PORT of /metrics, /healthz and /readyz; empty: none")

    @property
    def rollup_days(self) -> RollupDays:
        """For how many days rollups are kept."""
        return RollupDays(self.rollup_minutes_days, self.rollup_hours_days, self.rollup_days_days)
