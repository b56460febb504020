"""Locks on files, which end with the process. Only the owner of a file may lock it: else any reader could hold up its
writers."""

import fcntl
import os
import re
import time
from pathlib import Path

_POLL_S = 0.1
_LOCKS = Path("/proc/locks")
"""A line for each lock, with its process and its file: https://docs.kernel.org/filesystems/proc.html"""


class Locked(BlockingIOError):
    """Another process holds the lock; the message says which, without a full stop."""


def lock(path: Path, patience_s: float = 0.0) -> int:
    """Locks a file, which is made if it is missing; the folder must exist. Returns a descriptor: the lock ends when it
    is closed. Raises OSError: Locked if another process holds it for `patience_s`.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(file, 0o600)
        deadline = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise Locked(f"{path} is locked by {_holder(file)}") from None
                time.sleep(_POLL_S)
            else:
                return file
    except BaseException:
        os.close(file)
        raise


def is_locked(path: Path) -> bool:
    """Whether a process of this PID namespace holds the lock of a file, without trying to get it. Raises OSError."""
    return f":{path.stat().st_ino} " in _LOCKS.read_text()


def _holder(file: int) -> str:
    """`process 12`; `another process` where the kernel does not say who has the lock (another PID namespace, Btrfs)."""
    status = os.fstat(file)
    of_file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    found = re.search(rf"FLOCK +\w+ +\w+ +([1-9]\d*) {of_file} ", _LOCKS.read_text())
    return f"process {found[1]}" if found else "another process"
