"""Unwinding tables by the key of their file (MappedRange.file_key): read from disk, or built. A child process builds
those of large files."""

import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from collector.elf.error import ElfError, ElfTooLarge
from collector.unwind.tables import table as unwind_table
from collector.unwind.tables.builder import BuildError, UnwindBuilder
from collector.unwind.tables.table import UnwindTable
from icestream.files.disk_cache import DiskCache

log = logging.getLogger(__name__)

FOLDER = Path("/var/cache/icestream/unwind")
MAX_BYTES = 512 << 20
"""The most bytes of all tables on disk."""

FAILURE_S = 600.0
"""How long a file for which no table could be built is not tried again."""

_MAX_FAILURES = 4096
_LARGE_BYTES = 1 << 20  # a larger table that was just built is read from disk, where its rows can stay


class TableCache:
    """Safe to use from several threads; large tables are built one after the other. Without a `folder` no table is
    stored."""

    def __init__(self, folder: Path | None = FOLDER, max_bytes: int = MAX_BYTES) -> None:
        self._disk = DiskCache(folder, ".unwind", max_bytes) if folder is not None else None
        self._folder = folder
        self._max_bytes = max_bytes
        self._builder = UnwindBuilder()
        self._building = threading.Lock()
        self._failures: OrderedDict[str, float] = OrderedDict()  # file -> until when

    def get(
        self, file_key: str, open_file: Callable[[], int | None], close: Callable[[int], None] = os.close
    ) -> UnwindTable | None:
        """Returns the table of a file, which may take seconds and may have no rules; None if there is none.

        `open_file` opens the file if it must be read, and `close` closes it. The table of a file without a build ID
        ("") is not stored.
        """
        with self._building:
            try:
                return self._get(file_key, open_file, _build_small, close)
            except ElfTooLarge:
                return self._get(file_key, open_file, self._builder.build, close)

    def get_small(self, file_key: str, open_file: Callable[[], int | None]) -> UnwindTable | None:
        """Returns the same as `get` in milliseconds and without a child process, if the table is on disk or the file is
        small. Raises ElfTooLarge if it is neither."""
        return self._get(file_key, open_file, _build_small)

    def _get(
        self,
        file_key: str,
        open_file: Callable[[], int | None],
        build: Callable[[str, int], tuple[UnwindTable, bytes]],
        close: Callable[[int], None] = os.close,
    ) -> UnwindTable | None:
        if (cached := self.cached(file_key)) is not None or self._failed(file_key):
            return cached
        descriptor = open_file()
        if descriptor is None:
            return None
        try:
            table, data = build(file_key, descriptor)
        except ElfTooLarge:
            raise
        except (BuildError, ElfError) as error:
            log.debug("no unwinding table of %s: %s", file_key or "a file without build ID", error)
            self._remember_failure(file_key)
            return None
        finally:
            close(descriptor)
        self._store(file_key, data)
        large = len(data) > _LARGE_BYTES
        del data
        return (self.cached(file_key) if large else None) or table

    def cached(self, file_key: str) -> UnwindTable | None:
        """Returns the table if it is on disk and not damaged."""
        path = self._disk.use(file_key) if self._disk is not None and file_key else None
        if path is None:
            return None
        try:
            with path.open("rb", buffering=0) as file:
                return unwind_table.from_file(file.fileno(), file_key)
        except (OSError, ValueError) as error:
            log.debug("the stored table of %s is built again: %s", file_key, error)
            return None

    def close(self) -> None:
        """Ends the child process: a `get` that waits for a table returns None."""
        self._builder.close()

    def _failed(self, file_key: str) -> bool:
        return self._failures.get(file_key, 0.0) > time.monotonic()

    def _remember_failure(self, file_key: str) -> None:
        if file_key:
            self._failures[file_key] = time.monotonic() + FAILURE_S
            if len(self._failures) > _MAX_FAILURES:
                self._failures.popitem(last=False)

    def _store(self, file_key: str, data: bytes) -> None:
        if self._disk is None or not file_key or len(data) > self._max_bytes:
            return
        try:
            self._disk.write(file_key, data, mode=0o600)
        except OSError as error:
            log.warning("cannot store unwinding tables in %s: %s", self._folder, error)


def _build_small(file_key: str, descriptor: int) -> tuple[UnwindTable, bytes]:
    """Raises ElfTooLarge, ElfError."""
    table = unwind_table.build_small(descriptor)
    return table, unwind_table.to_bytes(table, file_key)
