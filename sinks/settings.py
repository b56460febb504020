"""Settings of the sinks, and of whatever else works on what they have stored."""

from dataclasses import dataclass

from icestream.settings import MessageSettings, NamesSettings, RequestLabelSettings, setting


@dataclass(frozen=True)
class RollupDays:
    """For how many days rollups are kept, by level; 0: for ever."""

    minute: int = 30
    hour: int = 180
    day: int = 1095


@dataclass(frozen=True, kw_only=True)
class StorageSettings(MessageSettings, RequestLabelSettings):
    """Where stored rows, messages and symbols are: for sinks and jobs."""

    clickhouse: str = setting(
        "http://default@127.0.0.1:8123/default",
        "use this ClickHouse: http://USER:PASSWORD@HOST:8123/DATABASE, or chdb:///FOLDER for the embedded engine",
    )
    archive: str = setting("", "write the raw archive to this folder or URI (s3://, gs://, az://); empty: write none")
    lake: str = setting(
        "", "write the lake (Delta tables) to this folder or URI (s3://, gs://, az://); empty: write none"
    )
    keep_free_mb: int = setting(
        1000,
        "leave so many MB free on the disks of the embedded ClickHouse, of --archive and of --lake: "
        "with less, sinks and jobs write nothing and wait",
    )
    kafka_timeout_s: float = setting(5.0, "wait so many seconds for an answer of Kafka")
    symbol_store: str = setting(
        "", "read symbols only from this folder or URI (s3://, gs://) of the symbol store; empty: from any place"
    )
    symbol_cache: str = setting("~/.cache/icestream/symcaches", "keep SymCaches in this folder")


@dataclass(frozen=True, kw_only=True)
class LakeSettings(NamesSettings):
    """What `icestream lake` takes."""

    lake: str = setting("", "read the lake (Delta tables) in this folder or URI (s3://, gs://, az://)")


@dataclass(frozen=True, kw_only=True)
class SinkSettings(StorageSettings, NamesSettings):
    """What `icestream sink` and `icestream migrate` take."""

    lake_days: int = setting(0, "keep rows in the lake for so many days; 0: for ever; their files go a week later")
    archive_days: int = setting(30, "keep the raw archive for so many days; 0: for ever")
    dead_letters_per_minute: int = setting(
        60, "publish at most so many dead letters a minute for each topic and reason; more of them are only counted"
    )
    flush_s: float = setting(
        1.0,
        "collect rows for so many seconds before the ClickHouse sink inserts them; a process with more "
        "than 12 partitions takes longer, so that it inserts at most 12 ranges a second",
    )
    lake_flush_s: float = setting(
        60.0, "collect rows for so many seconds before the lake sink and the archive write them"
    )
    cluster: str = setting(
        "",
        "make replicated tables on the hosts of this ClickHouse cluster, and Distributed ones if it has "
        "several shards, by `icestream migrate`; empty: unchanged (new tables: on one server)",
    )
    retention_days: int | None = setting(
        None,
        "drop rows of tables after so many days, except for rollups, set by `icestream migrate`; 0: "
        "never; empty: unchanged (new tables: 14)",
    )
    request_days: int = setting(
        3,
        "keep every request for so many days; of older days, operations with over 10,000 requests a day "
        "keep the 1 % with the most CPU, the 1 % that took longest, and one in a hundred; 0: as long as "
        "other rows",
    )
    rollup_minutes_days: int = setting(
        30, "keep rollups by minute for so many days, set by each `icestream migrate`; 0: for ever"
    )
    rollup_hours_days: int = setting(
        180, "keep rollups by hour for so many days, set by each `icestream migrate`; 0: for ever"
    )
    rollup_days_days: int = setting(
        1095, "keep rollups by day for so many days, set by each `icestream migrate`; 0: for ever"
    )
    insert_tokens: int | None = setting(
        None,
        "recognise so many inserts of each table when they come again, set by `icestream migrate`: 10000 "
        "for each process with a ClickHouse sink; empty: unchanged (new tables: 10000)",
    )
    metrics_listen: str = setting(
        "127.0.0.1:4063", "serve /metrics, /healthz and /readyz at this HOST:PORT; empty: none"
    )

    @property
    def rollup_days(self) -> RollupDays:
        """For how many days rollups are kept."""
        return RollupDays(self.rollup_minutes_days, self.rollup_hours_days, self.rollup_days_days)
