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
        self._file = open(folder / "lock", "a+", encoding="ascii")  # noqa: SIM115 - the open file holds the lock
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
