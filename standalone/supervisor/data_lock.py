"""A lock on the data folder: only one icestream may use it."""

import fcntl
import os
from pathlib import Path


class InUse(Exception):
    """Another process uses the folder; the message says which."""


class DataLock:
    """Locks the folder until `close`, or until the process ends in any way. Raises InUse and OSError."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # The open file holds the lock. The folder may belong to a user who has put a link to another file there.
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
        self._file = open(descriptor, "a+", encoding="ascii")  # noqa: SIM115
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read(20).strip()
            self._file.close()
            raise InUse(f"{folder} is in use by another icestream (process {holder or 'unknown'})") from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def close(self) -> None:
        self._file.close()
