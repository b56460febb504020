"""Runs what opens and reads files of processes on a thread of its own, and goes on without an answer after a while.

Where a network file system or a disk does not answer, opening or reading a file waits in the kernel, and no signal ends
that. Then one thread waits there until there is an answer, and meanwhile files of that mount are not looked at: each
mount that hangs costs one thread, and the others lose GIVE_UP_S once. A user can make any number of mounts that hang
(FUSE). So after MOST_HANGS of them, no file of that user's processes is looked at for a while, nor as long as they
hang. The threads are daemons, because the end of the process must not wait for them; those of concurrent.futures are
none.

A file may also take long because of what is in it. Then the thread takes CPU time, which says nothing about the mount:
that file is left alone, and counts as a hang of its user, too. A thread that does neither, but goes on slowly, is on a
busy host, and is waited for.
"""

import logging
import os
import queue
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from collector import metrics
from collector.guest import priority
from collector.guest.thread_time import seconds_of
from collector.processes.mounts import mounts
from collector.processes.process import effective_user_of, namespace_owner_of

GIVE_UP_S = 3.0
MOST_HANGING = 16
"""So many mounts that hang; then no file is looked at."""
MOST_HANGS = 3
"""One user other than root may have so many: those within REFUSED_S, and older ones that still hang."""
REFUSED_S = 600.0
USUAL_S = 0.1
"""What nearly all work takes less than."""
HEAVY_S = 0.5
"""The CPU time that one file may take; most take some milliseconds."""
_LOOKS = 10
"""So many of them find work that waits in the kernel: then it is given up, even if each read is answered, slowly."""
_MOST_REMEMBERED = 1000  # users with hangs, and heavy files
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


class _GaveUpError(Exception):
    """There is no result yet."""


class _Hang(NamedTuple):
    when: float  # by time.monotonic
    what: str  # mount, or file


class _Work(Generic[T]):
    """Work, and what the thread that does it is doing."""

    def __init__(self, work: Callable[[], T], heavy_s: float) -> None:
        self._work, self._heavy_s = work, heavy_s
        self.thread: int | None = None
        self._begun_s = self._took_s = 0.0

    def __call__(self) -> T:
        self._begun_s, self.thread = time.thread_time(), threading.get_native_id()
        try:
            return self._work()
        finally:
            self._took_s, self.thread = time.thread_time() - self._begun_s, None

    def is_heavy(self) -> bool:
        """Whether it takes, or took, much CPU time."""
        thread = self.thread
        with suppress(OSError):  # it has just ended
            return (self._took_s if thread is None else seconds_of(thread) - self._begun_s) > self._heavy_s
        return False


class Patience:
    """Safe to use from several threads; each call runs alone. What hangs for `beside` hangs for this one, too."""

    whose, thread, hanging, heavy_s = "its file system", "read-files", metrics.HANGING_MOUNTS, HEAVY_S

    def __init__(self, give_up_s: float = GIVE_UP_S, beside: "Patience | None" = None) -> None:
        self._give_up_s = give_up_s
        self._turn = threading.Lock()
        self._jobs: _Jobs | None = None
        # Mounts, and heavy files, for which a thread was left behind
        self._hanging: set[str] = set() if beside is None else beside._hanging
        self._heavy: dict[str, float] = {} if beside is None else beside._heavy  # until when a file is left alone
        self._hangs: dict[int, tuple[_Hang, ...]] = {} if beside is None else beside._hangs  # by user
        self.hanging.set_function(lambda: len(self._hanging - self._heavy.keys()))

    def key(self, pid: int, path: str) -> str:
        """What it waits for, to open and to read this file of a process."""
        return mount_of(pid, path)

    def blamed(self, pid: int, path: str) -> str:
        """What did not answer."""
        return self.key(pid, path)

    def is_hopeless(self, pid: int) -> bool:
        """Whether work that takes longer than usual is known to wait for something else than its mount. May take a
        while itself."""
        return False

    def waits_at(self, thread: int | None) -> float | None:
        """See `waits_at`: of a thread that works; None has just ended."""
        return None if thread is None else waits_at(f"/proc/self/task/{thread}", lambda: seconds_of(thread))

    def hangs(self, pid: int, path: str) -> bool:
        return bool(self._hanging) and self.key(pid, path) in self._hanging

    @property
    def full(self) -> bool:
        """Whether so much hangs that nothing more is looked at."""
        return len(self._hanging) >= MOST_HANGING

    def run(self, pid: int, path: str, work: Callable[[], T], discard: Callable[[T], None]) -> T:
        """Returns what `work` returns, which may call this itself; `path` is of its file, as the process sees it.
        `discard` gets a result that comes too late. Raises the errors of `work`, and TimeoutError if the file's mount
        does not answer, or what is in the file takes too long."""
        if getattr(_here, "waits", False):
            return work()
        with self._turn:
            user = effective_user_of(pid)
            file = f"{path!r} of user {user}"
            if self.full or self.hangs(pid, path):
                raise TimeoutError(f"{path}: {self.whose} does not answer")
            if self._heavy.get(file, 0.0) > time.monotonic() or file in self._hanging:
                raise TimeoutError(f"{path}: it took too much CPU time")
            if self._hangs and len(self._hangs_of(_account_of(pid, user))) >= MOST_HANGS:
                raise TimeoutError(f"{path}: files or file systems of user {user} took too long")
            if self._jobs is None:
                self._jobs = queue.SimpleQueue()
                threading.Thread(target=_serve, args=(self._jobs,), name=self.thread, daemon=True).start()
            future: Future[T] = Future()
            doing = _Work(work, self.heavy_s)
            self._jobs.put((future, doing))
            try:
                return self._result(future, doing, pid)
            except _GaveUpError:
                if doing.is_heavy():
                    self._heavy[file] = time.monotonic() + REFUSED_S
                    _forget_oldest(self._heavy)
                    log.warning("%s takes more than %g s of CPU time to read: it is left alone", file, self.heavy_s)
                    self._leave_behind(file, future, discard)
                    raise TimeoutError(f"{path}: it takes too much CPU time") from None
                mount = self.blamed(pid, path)
                if not _DISK.search(mount):
                    self._charge(_account_of(pid, user), mount)
                log.warning("%s does not answer for %g s: it is left alone until it does", mount, self._give_up_s)
                self._leave_behind(mount, future, discard)
                raise TimeoutError(f"{path}: {self.whose} does not answer") from None
            finally:
                if doing.is_heavy():
                    self._charge(_account_of(pid, user), file)

    def close(self) -> None:
        """Ends the thread that runs; one that waits for an answer ends with it."""
        with self._turn:
            self._end_thread()

    def _result(self, future: Future[T], doing: _Work[T], pid: int) -> T:
        """Raises _GaveUpError if there is none in time."""
        with suppress(TimeoutError):
            return future.result(USUAL_S)
        if not future.done() and self.is_hopeless(pid):
            raise _GaveUpError
        timeout_s, waited_at, waits = self._give_up_s, None, 0
        while True:
            try:
                return future.result(timeout_s)
            except TimeoutError:
                if future.done():  # its own error, or it has just ended
                    return future.result()
            before, waited_at = waited_at, self.waits_at(doing.thread)
            waits += waited_at is not None
            if doing.is_heavy() or (waited_at is not None and (waited_at == before or waits == _LOOKS)):
                raise _GaveUpError
            timeout_s = self._give_up_s / _LOOKS  # on a busy host it goes on

    def _charge(self, user: int, what: str) -> None:
        if user:  # not root, nor of a process that has ended
            self._hangs[user] = *self._hangs_of(user), _Hang(time.monotonic(), what)
            _forget_oldest(self._hangs)

    def _hangs_of(self, user: int) -> tuple[_Hang, ...]:
        """Those of a user that were lately, or are not over."""
        since = time.monotonic() - REFUSED_S
        return tuple(hang for hang in self._hangs.get(user, ()) if hang.when > since or hang.what in self._hanging)

    def _leave_behind(self, what: str, future: Future[T], discard: Callable[[T], None]) -> None:
        """Leaves the thread alone that works for `what`; the next work gets another one."""
        self._hanging.add(what)
        self._end_thread()
        future.add_done_callback(partial(self._answered, what, discard))

    def _end_thread(self) -> None:
        if self._jobs is not None:
            self._jobs.put(None)
            self._jobs = None

    def _answered(self, what: str, discard: Callable[[T], None], future: Future[T]) -> None:
        self._hanging.discard(what)
        log.warning("%s answers again", what)
        if future.exception() is None:
            discard(future.result())


def waits_at(task: str, cpu_s: Callable[[], float]) -> float | None:
    """The CPU time that a thread (its folder in /proc) had when it began to wait in the kernel, for something else than
    other threads of ours; None if it does not wait."""
    with suppress(OSError), open(f"{task}/stat", "rb") as stat, open(f"{task}/wchan", "rb") as wchan:
        state = stat.read().rpartition(b")")[2].split()[0]
        return cpu_s() if state in (b"S", b"D") and not wchan.read().startswith(b"futex") else None
    return None


def _account_of(pid: int, user: int | None) -> int:
    """Returns the user who answers for a process of this user: the owner of a subordinate ID, else the user itself."""
    return namespace_owner_of(pid) or user or 0


def _forget_oldest(remembered: dict[Any, Any]) -> None:
    while len(remembered) > _MOST_REMEMBERED:
        del remembered[next(iter(remembered))]


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
    table = list(mounts(pid)) or mounts(os.getpid())
    over = [mount for mount in table if f"{path}/".startswith(f"{mount.point.rstrip('/')}/")]
    if not over:
        return path
    mount = max(reversed(over), key=lambda mount: len(mount.point))  # of those with one point, the last one counts
    return f"{mount.point} ({mount.device})"
