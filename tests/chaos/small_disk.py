"""A small disk for a folder, which can be filled: a tmpfs, so only root can have one."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

KEEP_FREE_MB = 100
"""What sinks leave free on it."""
_SIZE_MB = 1000


def mount(folder: Path) -> bool:
    """Mounts a small disk at a folder that it makes; returns whether that is possible here."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE_MB}m", "icestream-chaos", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def unmount(folder: Path) -> None:
    """What the disk has stays in the folder."""
    aside = folder.with_suffix(".kept")
    shutil.copytree(folder, aside, symlinks=True, ignore=_sockets)
    subprocess.run(["umount", str(folder)], check=True)
    folder.rmdir()
    aside.rename(folder)


def fill(folder: Path, left_mb: int) -> Callable[[], None]:
    """Leaves so many MB free, or less; returns what frees the others again."""
    filler = folder / f"filler-{time.monotonic_ns()}"
    with filler.open("wb") as file:
        size = shutil.disk_usage(folder).free - left_mb * 1_000_000
        while size > 4096:
            try:
                os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), size)
            except OSError:  # others were quicker
                size //= 2
            else:
                size = shutil.disk_usage(folder).free - left_mb * 1_000_000
    return filler.unlink


def _sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_socket()]
