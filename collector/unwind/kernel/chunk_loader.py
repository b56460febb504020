"""Loads the chunks of large unwinding tables that walks need, on a thread of its own.

Their rows lie on a disk, which may be slow. Meanwhile the maps are not locked, and no event and no other table waits.
"""

import logging
import queue
import threading

import numpy as np

from collector.unwind.kernel.files import Chunk, UnwindFiles

log = logging.getLogger(__name__)

_CLOSE_S = 1.0  # the thread may wait for a disk that never answers


class ChunkLoader:
    """Works from `start` to `close`. `lock` guards the files and their maps."""

    def __init__(self, files: UnwindFiles, lock: threading.Lock) -> None:
        self._files, self._lock = files, lock
        self._wanted: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._waiting: set[int] = set()  # chunks in the queue, and the one that is being read
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="unwind-chunks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def request(self, chunk: int) -> None:
        """The chunk with this number will be in the maps soon, if there is room."""
        with self._lock:
            if chunk not in self._waiting:
                self._waiting.add(chunk)
                self._wanted.put(chunk)

    def close(self) -> None:
        """From now on nothing is put into the maps."""
        with self._lock:
            self._closed = True
        self._wanted.put(None)
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        while (chunk := self._wanted.get()) is not None:
            try:
                self._load(chunk)
            except Exception:
                log.exception("the chunk %d of unwinding tables was not loaded", chunk)
            with self._lock:
                self._waiting.discard(chunk)

    def _load(self, chunk: int) -> None:
        with self._lock:
            missing = None if self._closed else self._files.missing(chunk)
        if missing is None:
            return
        rows = _read(missing)
        with self._lock:
            if not self._closed:
                self._files.load(missing, rows)


def _read(chunk: Chunk) -> np.ndarray | None:
    try:
        return chunk.read()
    except OSError as error:
        log.debug("rows of %s cannot be read: %s", chunk.file.file_key, error)
        return None
