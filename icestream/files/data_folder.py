"""The folder in which the icestream of one machine keeps everything, and the socket that its applications report to."""

import os
from pathlib import Path

SYSTEM_DATA = Path("/var/lib/icestream")
SYSTEM_SOCKET = Path("/run/icestream/activity.sock")


def default_data() -> Path:
    """Returns the system's folder for root, and a folder in the home of everybody else (XDG base directories)."""
    if os.geteuid() == 0:
        return SYSTEM_DATA
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(home).expanduser() / "icestream"
