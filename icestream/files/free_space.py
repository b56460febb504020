"""The free space of disks: what writes to a disk asks before, because much goes wrong on a full one."""

import os
from pathlib import Path


class DiskFullError(OSError):
    """A disk has too little free space; the message says how much, and what to do."""


def free_bytes(folder: Path) -> int:
    """Returns what this user may still write to the folder's disk. The folder need not exist. Raises OSError."""
    while not folder.exists():
        folder = folder.parent
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def require(folder: Path, megabytes: int) -> None:
    """Raises DiskFullError where the folder's disk has less free space, and OSError."""
    free = free_bytes(folder)
    if free < megabytes * 1_000_000:
        raise DiskFullError(
            f"the disk of {folder} is full: {free // 1_000_000:,} MB are free, and {megabytes:,} MB are needed"
        )
