"""The CPU time of each thread of this process, by the threads' own CPU clocks (clock_gettime(2)): exact, and cheap.

A thread of Python's has the name that it was given. Others are those of the Kafka client (`kafka`), or of other
libraries and of requests for metrics (`other`). `ended` is the time of threads that no longer run, and `children` that
of child processes.
"""

import contextlib
import os
import threading
import time
from collections import defaultdict

from collector.guest.own_cpu import process_seconds

_SCHED, _PER_THREAD = 2, 4  # CPUCLOCK_SCHED and CPUCLOCK_PERTHREAD_MASK of the kernel's posix-timers.h
_MAIN = "sample"
_UNNAMED = ("Thread-", "Dummy-")  # with a number, which would make ever more names


def process_clock(pid: int) -> int:
    """The CPU clock of a process, for time.clock_gettime, as clock_getcpuclockid(3) makes it."""
    return ~pid << 3 | _SCHED


def seconds_of(tid: int) -> float:
    """The CPU time of a thread of this process so far. Raises OSError if it has ended."""
    return time.clock_gettime(~tid << 3 | _PER_THREAD | _SCHED)


def thread_seconds() -> dict[str, float]:
    """Name -> CPU seconds so far. Threads with one name are added up. The main thread is the sampling thread."""
    everything = process_seconds()
    whole = time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID)
    names = {thread.native_id: thread.name for thread in threading.enumerate() if not thread.name.startswith(_UNNAMED)}
    names[os.getpid()] = _MAIN
    spent: dict[str, float] = defaultdict(float)
    for tid in map(int, os.listdir("/proc/self/task")):
        with contextlib.suppress(OSError):
            spent[names.get(tid) or _library(tid)] += seconds_of(tid)
    spent["ended"] = max(0.0, whole - sum(spent.values()))
    spent["children"] = max(0.0, everything - whole)
    return dict(spent)


def _library(tid: int) -> str:
    try:
        with open(f"/proc/self/task/{tid}/comm", "rb") as file:
            return "kafka" if file.read().startswith(b"rdk:") else "other"
    except OSError:
        return "other"
