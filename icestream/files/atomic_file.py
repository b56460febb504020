"""Files that appear complete or not at all: written under another name in the same folder, then renamed."""

import contextlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PART = ".part"
"""How the names of unfinished files end. They begin with a dot."""


@contextmanager
def replacing(path: Path, mode: int = 0o666, durable: bool = False) -> Iterator[BinaryIO]:
    """Opens a file for writing and reading that takes the place of `path` at the end of the block.

    An exception leaves `path` as it was. Several threads and processes may write the same path: the last one wins.
    `mode`: the permissions, less the umask; `durable`: whether the file survives a crash of the machine after the
    block. Raises OSError; FileNotFoundError if the folder does not exist.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_native_id()}{PART}")
    try:
        with open(part, "w+b", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    if durable:
        _sync_folder(path.parent)


def write(path: Path, data: bytes) -> None:
    """Writes `data` to `path`. Raises OSError."""
    with replacing(path) as file:
        file.write(data)


def _sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
