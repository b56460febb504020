"""Runs what opens and reads files of processes on a thread of its own, and goes on without an answer after a while.

Where a network file system or a disk does not answer, opening or reading a file waits in the kernel, and no signal ends
that. Then one thread waits there until there is an answer, and meanwhile files of that mount are not looked at: each
mount that hangs costs one thread, and the others lose GIVE_UP_S once. A user can make any number of mounts that hang
(FUSE). So after MOST_HANGS of them, no file of that user's processes is looked at for a while, nor as long as they
hang. The threads are daemons, because the end of the process must not wait for them; those of concurrent.futures are
none.
"""

import logging
import queue
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from collector import metrics
from collector.guest import priority
from collector.processes.mounts import mounts
from collector.processes.process import effective_user_of

GIVE_UP_S = 3.0
MOST_HANGING = 16
"""So many mounts that hang; then no file is looked at."""
MOST_HANGS = 3
"""Of one user other than root: those within REFUSED_S, and older ones that still hang."""
REFUSED_S = 600.0
_MOST_USERS = 1000  # whose hangs are remembered
log = logging.getLogger(__name__)
T = TypeVar("T")


class Patiently(Protocol):
    """FileCache.patiently."""

    def __call__(self, key: str, work: Callable[[], T], longer: bool = False) -> T: ...


def at_once(key: str, work: Callable[[], T], longer: bool = False) -> T:
    """Waits for every file system, as long as that takes."""
    return work()


_Jobs = queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]
"""None ends their thread."""
_DISK = re.compile(r" \([1-9]\d*:\d+\)$")
"""The end of a mount on a block device: it may be slow, but no user made it so."""
_here = threading.local()  # `waits`: whether this thread is one that may wait


class _Hang(NamedTuple):
    when: float  # by time.monotonic
    mount: str


class Patience:
    """Safe to use from several threads; each call runs alone. What hangs for `beside` hangs for this one, too."""

    whose, thread, hanging = "its file system", "read-files", metrics.HANGING_MOUNTS

    def __init__(self, give_up_s: float = GIVE_UP_S, beside: "Patience | None" = None) -> None:
        self._give_up_s = give_up_s
        self._turn = threading.Lock()
        self._jobs: _Jobs | None = None
        self._hanging: set[str] = set() if beside is None else beside._hanging
        self._hangs: dict[int, tuple[_Hang, ...]] = {} if beside is None else beside._hangs  # by user
        self.hanging.set_function(lambda: len(self._hanging))

    def key(self, pid: int, path: str) -> str:
        """What it waits for, to open and to read this file of a process."""
        return mount_of(pid, path)

    def blamed(self, pid: int, path: str) -> str:
        """What did not answer."""
        return self.key(pid, path)

    def hangs(self, pid: int, path: str) -> bool:
        return bool(self._hanging) and self.key(pid, path) in self._hanging

    @property
    def full(self) -> bool:
        """Whether so much hangs that nothing more is looked at."""
        return len(self._hanging) >= MOST_HANGING

    def run(self, pid: int, path: str, work: Callable[[], T], discard: Callable[[T], None]) -> T:
        """Returns what `work` returns, which may call this itself; `path` is of its file, as the process sees it.
        `discard` gets a result that comes too late. Raises the errors of `work`, and TimeoutError if the file's mount
        does not answer."""
        if getattr(_here, "waits", False):
            return work()
        with self._turn:
            if self.full or self.hangs(pid, path):
                raise TimeoutError(f"{path}: {self.whose} does not answer")
            user = effective_user_of(pid)
            if user in self._hangs and len(self._hangs_of(user)) >= MOST_HANGS:
                raise TimeoutError(f"{path}: file systems of user {user} did not answer")
            if self._jobs is None:
                self._jobs = queue.SimpleQueue()
                threading.Thread(target=_serve, args=(self._jobs,), name=self.thread, daemon=True).start()
            future: Future[T] = Future()
            self._jobs.put((future, work))
            try:
                return future.result(self._give_up_s)
            except TimeoutError:
                if future.done():  # its own error, or it has just ended
                    return future.result()
            mount = self.blamed(pid, path)
            self._hanging.add(mount)
            if user and not _DISK.search(mount):  # not root, nor of a process that has ended
                self._hangs[user] = *self._hangs_of(user), _Hang(time.monotonic(), mount)
                while len(self._hangs) > _MOST_USERS:
                    del self._hangs[next(iter(self._hangs))]
            self._end_thread()
            log.warning("%s does not answer for %g s: it is left alone until it does", mount, self._give_up_s)
            future.add_done_callback(partial(self._answered, mount, discard))
            raise TimeoutError(f"{path}: {self.whose} does not answer")

    def close(self) -> None:
        """Ends the thread that runs; one that waits for an answer ends with it."""
        with self._turn:
            self._end_thread()

    def _hangs_of(self, user: int) -> tuple[_Hang, ...]:
        """Those of a user that were lately, or are not over."""
        since = time.monotonic() - REFUSED_S
        return tuple(hang for hang in self._hangs.get(user, ()) if hang.when > since or hang.mount in self._hanging)

    def _end_thread(self) -> None:
        if self._jobs is not None:
            self._jobs.put(None)
            self._jobs = None

    def _answered(self, mount: str, discard: Callable[[T], None], future: Future[T]) -> None:
        self._hanging.discard(mount)
        log.warning("%s answers again", mount)
        if future.exception() is None:
            discard(future.result())


def _serve(jobs: _Jobs) -> None:
    priority.run_at_once()
    _here.waits = True
    while (job := jobs.get()) is not None:
        future, work = job
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)


def mount_of(pid: int, path: str) -> str:
    """Returns the mount point of a file as a process sees it, with its device; the path if that is not known. Asks the
    kernel only, never the file system."""
    table = list(mounts(pid)) or mounts("self")
    over = [mount for mount in table if f"{path}/".startswith(f"{mount.point.rstrip('/')}/")]
    if not over:
        return path
    mount = max(reversed(over), key=lambda mount: len(mount.point))  # of those with one point, the last one counts
    return f"{mount.point} ({mount.device})"
