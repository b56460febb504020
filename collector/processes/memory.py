"""Looks at the memory of other processes, and waits for it only for a while.

Whoever reads /proc/PID/environ, cmdline, maps, auxv or mem, opens a file in map_files, or calls process_vm_readv(2),
waits for a lock of that process, and for the pages that it reads. A process needs no privilege to keep both for as long
as it likes: a page of a file whose file system (FUSE) never answers; a thread that reads such a page through
/proc/self/mem, which keeps the lock. The kernel lets nobody see beforehand whether that is so, and SIGKILL does not end
every such wait. So each look happens on a thread that can be left behind (patience.py), at most MOST_HANGING in all.
"""

import math
from collections.abc import Callable
from typing import TypeVar

from collector import metrics
from collector.processes import pages
from collector.processes.patience import MOST_HANGING, Patience
from collector.processes.process import folder_of, read_process

GIVE_UP_S = 1.0
"""A look takes less than a millisecond; while a process forks, it keeps its lock for some milliseconds for each GB."""
T = TypeVar("T")


class _Patience(Patience):
    whose, thread, hanging = "its memory", "read-memory", metrics.HANGING_PROCESSES
    heavy_s = math.inf  # a reader has bounds of its own, and may have much to read

    def key(self, pid: int, path: str) -> str:
        return name(pid)

    def waits_at(self, thread: int | None) -> float | None:
        child = None if thread is None else pages.asked_by(thread)
        return super().waits_at(thread) if child is None else child.waits_at()


_patience = _Patience(GIVE_UP_S)


def patiently(pid: int, work: Callable[[], T], discard: Callable[[T], None] = lambda late: None) -> T:
    """Returns what `work` returns, which looks at the memory of a process; it may call this itself. Raises the errors
    of `work`, and TimeoutError if the process does not let it look, or its user had too many that did not: then `work`
    ends on another thread, as late as that may be, so it must change nothing, and `discard` gets what it returns."""
    return _patience.run(pid, f"process {pid}", work, discard)


def name(pid: int) -> str:
    """The memory of a process, in words. Another process with its ID has another one."""
    process = read_process(pid)
    return f"the memory of process {pid}, which started at tick {process.start_ticks if process else None},"


def hangs(pid: int) -> bool:
    """Whether a look at the memory of this process still waits."""
    return _patience.hangs(pid, "")


def answers(pid: int) -> bool:
    """Whether the process lets us look at the map of its memory; also if it has ended."""
    try:
        patiently(pid, lambda: take_lock(pid))
    except TimeoutError:
        return False
    except OSError:  # it has ended
        return True
    return True


def take_lock(pid: int) -> None:
    """Takes the lock of the memory map, and lets it go; /proc/PID/maps is read without it since Linux 6.16. Raises
    OSError."""
    with open(f"{folder_of(pid)}/cmdline", "rb", buffering=0) as file:
        file.read(1)


def why_blind() -> str | None:
    """Why no process is looked at any more; None while they are."""
    return (
        f"the memory of {MOST_HANGING} processes does not answer: no other one is looked at" if _patience.full else None
    )
