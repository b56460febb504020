"""The folder in which the icestream of one machine keeps everything, and the socket that its applications report to."""

import os
from dataclasses import dataclass
from pathlib import Path

from icestream.settings import Settings, setting

SYSTEM_DATA = Path("/var/lib/icestream")
SYSTEM_SOCKET = Path("/run/icestream/activity.sock")


def default_data() -> Path:
    """Returns the system's folder for root, and a folder in the home of everybody else (XDG base directories)."""
    if os.geteuid() == 0:
        return SYSTEM_DATA
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(home).expanduser() / "icestream"


@dataclass(frozen=True, kw_only=True)
class DataSettings(Settings):
    """The data folder."""

    data: Path | None = setting(
        None, "folder of everything that is kept; by default /var/lib/icestream for root, else ~/.local/share/icestream"
    )

    @property
    def folder(self) -> Path:
        return (self.data or default_data()).absolute()
