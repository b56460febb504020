"""Unwinding tables by build ID: from disk, or built; of large files by a child process."""

import contextlib
import hashlib
import logging
import os
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from collector.unwind import table as unwind_table
from collector.unwind.builder import BuildError, UnwindBuilder
from collector.unwind.table import CfiError, CfiTooLarge, UnwindTable

log = logging.getLogger(__name__)

FOLDER = Path("/var/cache/icestream/unwind")
MAX_BYTES = 512 << 20
"""On disk; beyond, the tables that were used least recently go."""

FAILURE_S = 600.0
"""How long it is remembered that there is no table of a file."""

_MAX_FAILURES = 4096
_SUFFIX = ".unwind"
_PART_S = 3600.0  # a part older than that is of a collector that died


class TableCache:
    """Safe to use from several threads; large tables are built one after the other. `folder` None: nothing is kept."""

    def __init__(self, folder: Path | None = FOLDER, max_bytes: int = MAX_BYTES) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._builder = UnwindBuilder()
        self._building = threading.Lock()
        self._failures: OrderedDict[str, float] = OrderedDict()  # build ID -> until when

    def get(self, build_id: str, open_file: Callable[[], int | None]) -> UnwindTable | None:
        """The table of the file, which may take seconds; None where none can be had. It may have no rules.

        `open_file` opens the file, where it must be read; the descriptor is closed here. A file without a build ID ("")
        is not kept.
        """
        with self._building:
            try:
                return self.get_small(build_id, open_file)
            except CfiTooLarge:
                return self._get(build_id, open_file, self._builder.build)

    def get_small(self, build_id: str, open_file: Callable[[], int | None]) -> UnwindTable | None:
        """The same in milliseconds, without a child process, of a table that is on disk or of a small file.

        Raises CfiTooLarge where `get` is to be asked.
        """
        return self._get(build_id, open_file, _build_small)

    def _get(
        self,
        build_id: str,
        open_file: Callable[[], int | None],
        build: Callable[[str, int], tuple[UnwindTable, bytes]],
    ) -> UnwindTable | None:
        if (found := self.cached(build_id)) is not None or self._failed(build_id):
            return found
        descriptor = open_file()
        if descriptor is None:
            return None
        try:
            table, data = build(build_id, descriptor)
        except CfiTooLarge:
            raise
        except (BuildError, CfiError) as error:
            log.debug("no unwinding table of %s: %s", build_id or "a file without build ID", error)
            self._remember_failure(build_id)
            return None
        finally:
            os.close(descriptor)
        self._keep(build_id, data)
        return table

    def cached(self, build_id: str) -> UnwindTable | None:
        """The table, if it is on disk."""
        if self._folder is None or not build_id:
            return None
        path = self._path(self._folder, build_id)
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        try:
            return unwind_table.from_bytes(data, build_id)
        except ValueError as error:
            log.debug("%s is built again: %s", path, error)
            return None

    def close(self) -> None:
        """A `get` that waits for a table returns None."""
        self._builder.close()

    def _failed(self, build_id: str) -> bool:
        return self._failures.get(build_id, 0.0) > time.monotonic()

    def _remember_failure(self, build_id: str) -> None:
        if build_id:
            self._failures[build_id] = time.monotonic() + FAILURE_S
            if len(self._failures) > _MAX_FAILURES:
                self._failures.popitem(last=False)

    def _keep(self, build_id: str, data: bytes) -> None:
        """On disk, at once or not at all."""
        if self._folder is None or not build_id or len(data) > self._max_bytes:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, prefix=".", delete=False) as part:
                try:
                    part.write(data)
                    part.close()
                    os.replace(part.name, self._path(self._folder, build_id))
                except OSError:
                    os.unlink(part.name)
                    raise
            self._evict(self._folder)
        except OSError as error:
            log.warning("unwinding tables are not kept in %s: %s", self._folder, error)

    def _evict(self, folder: Path) -> None:
        """Tables used least recently, until the others fit; and parts that nobody finished."""
        now, kept = time.time(), []
        with os.scandir(folder) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if entry.name.endswith(_SUFFIX):
                    kept.append((status.st_mtime_ns, status.st_size, entry.path))
                elif entry.name.startswith(".") and status.st_mtime < now - _PART_S:
                    _unlink(entry.path)
        total = sum(size for _, size, _ in kept)
        for _, size, path in sorted(kept):
            if total <= self._max_bytes:
                return
            _unlink(path)
            total -= size

    @staticmethod
    def _path(folder: Path, build_id: str) -> Path:
        return folder / (hashlib.sha256(build_id.encode()).hexdigest()[:40] + _SUFFIX)


def _build_small(build_id: str, descriptor: int) -> tuple[UnwindTable, bytes]:
    """Raises CfiTooLarge, CfiError."""
    table = unwind_table.build_small(descriptor)
    return table, unwind_table.to_bytes(table, build_id)


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
