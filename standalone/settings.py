"""Settings of the whole on one machine."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from api.settings import ApiSettings
from icestream.settings import KafkaSettings, Settings, setting
from sinks.settings import SinkSettings

SYSTEM_DATA = Path("/var/lib/icestream")
SYSTEM_SOCKET = Path("/run/icestream/activity.sock")


def default_data() -> Path:
    """Root's is the system's, everybody else's their own (XDG base directory specification)."""
    if os.geteuid() == 0:
        return SYSTEM_DATA
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(home).expanduser() / "icestream"


@dataclass(frozen=True, kw_only=True)
class DataSettings(Settings):
    """Where everything is kept."""

    data: Path | None = setting(
        None, "folder of everything that is kept; by default /var/lib/icestream for root, else ~/.local/share/icestream"
    )

    @property
    def folder(self) -> Path:
        return (self.data or default_data()).absolute()


@dataclass(frozen=True, kw_only=True)
class StoreSettings(SinkSettings, ApiSettings, DataSettings):
    """What `icestream store` takes: the sinks' settings and the API's, with places under the data folder."""

    clickhouse: str = setting(
        "", "ClickHouse: http://USER:PASSWORD@HOST:8123/DATABASE; by default embedded, under --data"
    )
    archive: str = setting("", "folder of the raw archive; by default under --data")

    def with_places(self) -> "StoreSettings":
        """With the defaults that depend on the data folder."""
        return replace(
            self,
            clickhouse=self.clickhouse or f"chdb://{self.folder / 'clickhouse'}",
            archive=self.archive or str(self.folder / "archive"),
        )


@dataclass(frozen=True, kw_only=True)
class UpSettings(KafkaSettings, DataSettings):
    """What `icestream up` takes; its parts also read their own settings from the environment."""

    listen: str = setting("127.0.0.1:4060", "HOST:PORT of the API and the page; port 0: any free one")
    kafka: str = setting("", "a Kafka to use, HOST:PORT; by default one is started here")
    clickhouse: str = setting("", "a ClickHouse to use, http://USER:PASSWORD@HOST:8123/DATABASE; by default embedded")
    frequency: int = setting(19, "samples per second and CPU")
    collector: bool = setting(True, "profile this machine")
    parquet: str = setting("", "folder or URI (s3://, gs://, az://) of Delta tables to write as well; empty: none")
    metrics_listen: str = setting(
        "127.0.0.1:4064", "HOST:PORT of the supervisor's /metrics, /healthz and /readyz; port 0: any free ones, for all"
    )
    activity_socket: str = setting(
        "", "socket where applications report activity; by default activity.sock under --data"
    )
    local_kafka: bool = setting(True, "start Apache Kafka where no Kafka is given and its jars are here (make kafka)")

    @property
    def socket(self) -> Path:
        """Where applications look without being told, when this is the machine's own icestream."""
        if self.activity_socket:
            return Path(self.activity_socket).absolute()
        return SYSTEM_SOCKET if self.folder == SYSTEM_DATA else self.folder / "activity.sock"
