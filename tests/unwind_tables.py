"""Where collectors of tests keep unwinding tables that no test asks about: each is made once in a run of pytest."""

import os
import tempfile
from pathlib import Path

_SETTING = "ICESTREAM_UNWIND_CACHE"
_made: list[tempfile.TemporaryDirectory[str]] = []  # removed when the run ends


def share() -> None:
    """Makes a folder for all processes of pytest, and for the collectors that they start."""
    if "PYTEST_XDIST_WORKER" in os.environ:  # the first process has made it
        return
    _made.append(tempfile.TemporaryDirectory(prefix="icestream-unwind-"))
    Path(_made[0].name).chmod(0o755)  # for collectors of other users
    os.environ[_SETTING] = _made[0].name


def tables() -> Path:
    return Path(os.environ[_SETTING])
