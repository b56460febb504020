"""Runs what opens and reads files of processes on a thread of its own, and goes on without an answer after a while.

Where a network file system or a disk does not answer, opening or reading a file waits in the kernel, and no signal ends
that. Then one thread waits there until there is an answer, and meanwhile files of that mount are not looked at: each
mount that hangs costs one thread, and the others lose GIVE_UP_S once.
"""

import logging
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from collector import metrics
from collector.guest import priority

GIVE_UP_S = 3.0
MOST_HANGING = 16
"""So many mounts that hang; then no file is looked at."""
log = logging.getLogger(__name__)
T = TypeVar("T")


class _Job(Generic[T]):
    def __init__(self, work: Callable[[], T], discard: Callable[[T], None]) -> None:
        self._work, self._discard = work, discard
        self._lock = threading.Lock()
        self._is_given_up = False
        self.ended = threading.Event()
        self.result: T | None = None
        self.error: Exception | None = None

    def run(self) -> bool:
        """Returns whether somebody takes the result."""
        try:
            result = self._work()
        except Exception as error:
            self.error = error
            with self._lock:
                self.ended.set()
                return not self._is_given_up
        with self._lock:
            self.result = result
            self.ended.set()
            if not self._is_given_up:
                return True
        self._discard(result)
        return False

    def give_up(self) -> bool:
        """Returns False if it has ended."""
        with self._lock:
            self._is_given_up = not self.ended.is_set()
            return self._is_given_up


_Jobs = queue.SimpleQueue[_Job[Any] | str | None]
"""Jobs; None ends their thread. Behind one that was given up: its mount."""


class Patience:
    """Safe to use from several threads; each call runs alone."""

    def __init__(self, give_up_s: float = GIVE_UP_S) -> None:
        self._give_up_s = give_up_s
        self._turn = threading.Lock()
        self._jobs: _Jobs | None = None
        self._hanging: set[str] = set()
        metrics.HANGING_MOUNTS.set_function(lambda: len(self._hanging))

    def run(self, pid: int, path: str, work: Callable[[], T], discard: Callable[[T], None]) -> T:
        """Returns what `work` returns; `path` is of its file, as the process sees it. `discard` gets a result that
        comes too late. Raises the errors of `work`, and TimeoutError if the file's mount does not answer."""
        with self._turn:
            if self._hanging and (len(self._hanging) >= MOST_HANGING or mount_of(pid, path) in self._hanging):
                raise TimeoutError(f"{path}: its file system does not answer")
            if self._jobs is None:
                self._jobs = queue.SimpleQueue()
                threading.Thread(target=self._serve, args=(self._jobs,), name="read-files", daemon=True).start()
            job = _Job(work, discard)
            self._jobs.put(job)
            if not job.ended.wait(self._give_up_s) and job.give_up():
                mount = mount_of(pid, path)
                self._hanging.add(mount)
                self._jobs.put(mount)
                self._jobs = None
                log.warning(
                    "%s does not answer for %g s: its files are not looked at until it does", mount, self._give_up_s
                )
                raise TimeoutError(f"{path}: its file system does not answer")
        if job.error is not None:
            raise job.error
        return job.result  # type: ignore[return-value]

    def close(self) -> None:
        """Ends the thread that runs; one that waits for an answer ends with it."""
        with self._turn:
            if self._jobs is not None:
                self._jobs.put(None)
                self._jobs = None

    def _serve(self, jobs: "_Jobs") -> None:
        priority.run_at_once()
        while isinstance(job := jobs.get(), _Job):
            if not job.run():
                mount = jobs.get()
                self._hanging.discard(str(mount))
                log.warning("%s answers again", mount)
                return


def mount_of(pid: int, path: str) -> str:
    """Returns the mount point of a file as a process sees it, with its device; the path if that is not known. Asks the
    kernel only, never the file system. Format: /proc/PID/mountinfo in proc(5)."""
    best = (0, path)
    for source in (f"/proc/{pid}/mountinfo", "/proc/self/mountinfo"):
        try:
            with open(source, "rb") as lines:
                mounts = [line.split(b" ", 5)[2:5] for line in lines]
        except OSError:
            continue
        for device, _, escaped in mounts:
            point = os.fsdecode(escaped.decode("unicode_escape").encode("latin-1"))
            if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= best[0]:
                best = len(point), f"{point} ({device.decode()})"
        break
    return best[1]
