"""Settings of the jobs."""

from dataclasses import dataclass, replace
from typing import Self

from icestream.data_folder import DataSettings
from icestream.settings import setting
from sinks.settings import StorageSettings


@dataclass(frozen=True, kw_only=True)
class JobSettings(StorageSettings, DataSettings):
    """What `icestream replay` and `icestream backfill` take: where things are stored, by default under `data`."""

    clickhouse: str = setting(
        "", "ClickHouse: http://USER:PASSWORD@HOST:8123/DATABASE; by default the embedded engine, under --data"
    )
    archive: str = setting("", "folder or URI (s3://, gs://, az://) of the raw archive; by default under --data")

    def with_default_folders(self) -> Self:
        """Returns these settings with the defaults that depend on the data folder filled in."""
        return replace(
            self,
            clickhouse=self.clickhouse or f"chdb://{self.folder / 'clickhouse'}",
            archive=self.archive or str(self.folder / "archive"),
        )
