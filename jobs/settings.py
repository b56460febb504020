"""Settings of the jobs."""

import argparse
from dataclasses import dataclass, fields, replace
from typing import Self

from icestream.settings import DataSettings, setting
from sinks.settings import StorageSettings

_WHERE = ("data", "clickhouse")
"""The settings by which a job finds a running store."""


@dataclass(frozen=True, kw_only=True)
class JobSettings(StorageSettings, DataSettings):
    """What `icestream replay` and `icestream backfill` take: where things are stored, by default under `data`."""

    clickhouse: str = setting(
        "", "use this ClickHouse: http://USER:PASSWORD@HOST:8123/DATABASE; by default the embedded engine, under --data"
    )
    archive: str = setting(
        "", "read the raw archive in this folder or URI (s3://, gs://, az://); by default under --data"
    )

    def with_default_folders(self) -> Self:
        """Returns these settings with the defaults that depend on the data folder filled in."""
        return replace(
            self,
            clickhouse=self.clickhouse or f"chdb://{self.folder / 'clickhouse'}",
            archive=self.archive or str(self.folder / "archive"),
        )

    @classmethod
    def flags(cls, args: argparse.Namespace) -> list[str]:
        """Returns the flags on a command line that a running store would ignore: all but those by which it is found."""
        names = (field.name for field in fields(cls) if field.name not in _WHERE)
        return [f"--{name.replace('_', '-')}" for name in names if getattr(args, name) is not None]
