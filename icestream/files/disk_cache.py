"""A folder of files by key, up to a number of bytes: beyond it, the files that were used least recently are deleted."""

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from icestream.files import atomic_file

MAX_FILES = 100_000
_PART_S = 3600.0  # an older unfinished file is left from a process that died


class DiskCache:
    """Several threads and processes may use one folder. It is made by the first write.

    The time of a file's last use is its modification time.
    """

    def __init__(
        self, folder: Path, suffix: str, max_bytes: int, evicted: Callable[[Path], None] = lambda path: None
    ) -> None:
        """`suffix`: how the names of the files end, ".unwind"; `evicted` is called after a file was deleted."""
        self._folder = folder
        self._suffix = suffix
        self._max_bytes = max_bytes
        self._evicted = evicted

    def path(self, key: str) -> Path:
        """Returns where the file of a key lies, whether it exists or not."""
        # Keys come from outside and may hold anything; a hash is always the name of a file.
        return self._folder / (hashlib.sha256(key.encode()).hexdigest()[:40] + self._suffix)

    def use(self, key: str) -> Path | None:
        """Returns the file of a key and marks it as used now; None if there is no such file."""
        path = self.path(key)
        try:
            os.utime(path)
        except OSError:
            return None
        return path

    def read(self, key: str) -> bytes | None:
        """Returns the bytes of a key's file and marks it as used now; None if there is no such file."""
        path = self.use(key)
        try:
            return path.read_bytes() if path is not None else None
        except OSError:
            return None

    @contextmanager
    def writing(self, key: str, mode: int = 0o666) -> Iterator[BinaryIO]:
        """Opens a file that becomes the key's at the end of the block, as atomic_file.replacing does; then deletes
        other files if there are too many bytes. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self.path(key)
        with atomic_file.replacing(path, mode) as file:
            yield file
        self._evict(path)

    def write(self, key: str, data: bytes, mode: int = 0o666) -> None:
        """Writes the file of a key. Raises OSError."""
        with self.writing(key, mode) as file:
            file.write(data)

    def _evict(self, newest: Path) -> None:
        """Deletes the files used least recently until the others fit, but not `newest`; and old unfinished files."""
        files: list[tuple[int, int, str]] = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # another process deletes files, too
                    status = entry.stat(follow_symlinks=False)
                    if entry.name.endswith(self._suffix):
                        files.append((status.st_mtime_ns, status.st_size, entry.path))
                    elif entry.name.endswith(atomic_file.PART) and status.st_mtime < time.time() - _PART_S:
                        os.unlink(entry.path)
        total = sum(size for _, size, _ in files)
        for number, (_, size, path) in enumerate(sorted(files)):
            if total <= self._max_bytes and len(files) - number <= MAX_FILES:
                return
            if path != str(newest):
                Path(path).unlink(missing_ok=True)
                self._evicted(Path(path))
                total -= size
