"""Settings of the whole on one machine."""

from dataclasses import dataclass
from pathlib import Path

from api.settings import ApiSettings
from icestream.data_folder import SYSTEM_DATA, SYSTEM_SOCKET, DataSettings
from icestream.settings import KafkaSettings, setting
from jobs.settings import JobSettings


@dataclass(frozen=True, kw_only=True)
class StoreSettings(JobSettings, ApiSettings):
    """What `icestream store` takes: the settings of the jobs, which it runs for others, and of the API."""


@dataclass(frozen=True, kw_only=True)
class UpSettings(KafkaSettings, DataSettings):
    """What `icestream up` takes; its parts also read their own settings from the environment."""

    listen: str = setting("127.0.0.1:4060", "HOST:PORT of the API and the page; port 0: any free one")
    kafka: str = setting("", "HOST:PORT of a Kafka to use; by default a broker is started here")
    clickhouse: str = setting(
        "", "ClickHouse to use, http://USER:PASSWORD@HOST:8123/DATABASE; by default the embedded engine"
    )
    frequency: int = setting(19, "samples per second and CPU")
    collector: bool = setting(True, "profile this machine")
    parquet: str = setting("", "folder or URI (s3://, gs://, az://) of the Delta tables; empty: write none")
    metrics_listen: str = setting(
        "127.0.0.1:4064", "HOST:PORT of the supervisor's /metrics, /healthz and /readyz; port 0: any free ones, for all"
    )
    activity_socket: str = setting(
        "", "socket where applications report activity; by default activity.sock under --data"
    )
    local_kafka: bool = setting(
        True, "start Apache Kafka where no Kafka is given and its jars are installed (make kafka)"
    )

    @property
    def socket(self) -> Path:
        """Where applications look without being told, when this is the machine's own icestream."""
        if self.activity_socket:
            return Path(self.activity_socket).absolute()
        return SYSTEM_SOCKET if self.folder == SYSTEM_DATA else self.folder / "activity.sock"
