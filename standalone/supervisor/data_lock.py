"""A lock on the data folder: only one icestream may use it, and no other user looks into it."""

import logging
import os
import stat
from pathlib import Path

from icestream.files import file_lock

_OURS = {
    "activity.sock", "archive", "clickhouse", "kafka", "lock", "run.json", "spool", "symbol-cache", "symbols", "up.log",
}  # fmt: skip
"""A folder that has anything else may have another purpose, such as /var/lib: its mode is left alone."""

log = logging.getLogger(__name__)


def lock_data(folder: Path) -> int:
    """Makes the folder if it is missing, with the mode 0750 whatever the umask, and locks it: until the descriptor that
    this returns is closed, or the process ends in any way. Raises OSError, also if another icestream uses it."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = file_lock.lock(folder / "lock")
    except file_lock.Locked as error:
        raise BlockingIOError(f"{folder} is in use by another icestream: {error}") from None
    status = folder.stat()
    if status.st_uid == os.geteuid() and {entry.name for entry in folder.iterdir()} <= _OURS:
        folder.chmod(0o750)
    elif status.st_mode & stat.S_IRWXO:
        log.warning("other users can look into the data folder (chmod 750 %s)", folder)
    return lock
