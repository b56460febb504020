"""Downloads debug files from debuginfod on a thread of its own, so that a slow server delays no other names."""

import queue
import threading
from typing import NamedTuple

from collector import metrics
from collector.symbols.debuginfod import Debuginfod, DebuginfodError

MAX_WAITING = 256


class Finished(NamedTuple):
    build_id: str
    path: str  # of the file for which it was requested
    error: str  # "" after a download


class Downloads:
    """Safe for several threads. The downloading thread starts with the first request."""

    def __init__(self, servers: Debuginfod) -> None:
        self.servers = servers
        self._wanted: queue.Queue[tuple[str, str]] = queue.Queue(MAX_WAITING)
        self._finished: queue.SimpleQueue[Finished] = queue.SimpleQueue()
        self._under_way: set[str] = set()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # of what is under way, and of the thread

    def ask(self, build_id: str, path: str) -> bool:
        """Requests a download, whose result `finished` returns later; False if too many are waiting."""
        with self._lock:
            if build_id in self._under_way:
                return True
            try:
                self._wanted.put_nowait((build_id, path))
            except queue.Full:
                return False
            self._under_way.add(build_id)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="debuginfod", daemon=True)
                self._thread.start()
            return True

    def finished(self) -> Finished | None:
        """Returns a finished download; None if there is none."""
        with self._lock:
            try:
                done = self._finished.get_nowait()
            except queue.Empty:
                return None
            self._under_way.discard(done.build_id)
            return done

    def _run(self) -> None:
        while True:
            wanted = self._wanted.get()
            error = ""
            try:
                self.servers.fetch(wanted[0])
            except (DebuginfodError, OSError) as failed:
                error = str(failed) or type(failed).__name__
            metrics.DEBUGINFOD.labels("failed" if error else "found").inc()
            self._finished.put(Finished(*wanted, error))
