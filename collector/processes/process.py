"""What identifies a process, fields of /proc/PID/stat (proc_pid_stat(5)); and which folder in /proc says what it has.

A process lives as long as one of its threads. When the first one has ended, nothing is left in /proc/PID that belongs
to its memory, files and namespaces: `maps`, `environ`, `map_files` are empty, `exe` and `root` lead nowhere. The
folders of the other threads have all of it.
"""

import fcntl
import os
import sys
import time
from itertools import islice
from typing import NamedTuple

_PF_KTHREAD = 0x00200000
_STAT_BYTES = 4096
_MOST_THREADS = 100  # that are looked at for one that lives
_NS_GET_PARENT, _NS_GET_OWNER_UID = 0xB702, 0xB704  # ioctl_nsfs(2)
TICKS = os.sysconf("SC_CLK_TCK")
"""Ticks of a second, in /proc."""


class Process(NamedTuple):
    """Two are equal if they are the same process, running the same program."""

    pid: int
    start_ticks: int  # since boot
    program: tuple[int, int, int]  # where code, stack and arguments begin: random in each exec
    kernel: bool  # a thread of the kernel's own


def read_process(pid: int) -> Process | None:
    """Reads a process; None when there is none with that ID."""
    return _living(pid, "/proc")[1]


def thread_of(pid: int, proc: str = "/proc") -> int:
    """A thread of a process that has not ended: the first one, while it lives; then another one, which may end at any
    moment. The ID of the process if all have ended."""
    return _living(pid, proc)[0]


def folder_of(pid: int, proc: str = "/proc") -> str:
    """The folder in /proc that says what a process has: that of `thread_of`."""
    thread = thread_of(pid, proc)
    return f"{proc}/{pid}" if thread == pid else f"{proc}/{pid}/task/{thread}"


def is_another(process: Process) -> bool:
    """Whether another process has its ID by now: then what was read by that ID may be the other one's."""
    now = read_process(process.pid)
    return now is not None and now.start_ticks != process.start_ticks


def user_of(pid: int) -> int | None:
    """The real user ID of a process. None if it ended."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            return next((int(line.split()[1]) for line in file if line.startswith(b"Uid:")), None)
    except OSError:
        return None


def effective_user_of(pid: int) -> int | None:
    """The effective user ID of a process, ten times as fast as `user_of`. None if it ended."""
    try:
        # The files in this folder belong to root if the process may not be dumped, but the folder never does (proc(5)).
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def in_own_user_namespace(pid: int) -> bool:
    """Whether a process is in our user namespace. False if it ended, or if that may not be asked."""
    try:
        return os.path.samefile(f"/proc/{pid}/ns/user", "/proc/self/ns/user")
    except OSError:
        return False


def namespace_owner_of(pid: int) -> int | None:
    """The user who made the user namespace of a process: of nested ones, the outermost below ours. In there, processes
    may have any subordinate ID of that user. None if the process is in our own namespace, or ended."""
    own, owner = os.stat("/proc/self/ns/user").st_ino, None
    try:
        namespace = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        while os.fstat(namespace).st_ino != own:
            owner = int.from_bytes(fcntl.ioctl(namespace, _NS_GET_OWNER_UID, bytes(4)), sys.byteorder)
            parent = fcntl.ioctl(namespace, _NS_GET_PARENT)
            os.close(namespace)
            namespace = parent
    except OSError:  # it is not below ours
        return None
    finally:
        os.close(namespace)
    return owner


def exists(pid: int) -> bool:
    """Whether there is a process with that ID."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # one that we may not signal
        return True
    return True


def _living(pid: int, proc: str) -> tuple[int, Process | None]:
    """A thread that has not ended, and what it says of its process; of a process that has ended, the first one."""
    first = _read(pid, f"{proc}/{pid}")
    if first is None or _has_memory(first):
        return pid, first
    try:
        with os.scandir(f"{proc}/{pid}/task") as entries:
            threads = [int(entry.name) for entry in islice(entries, _MOST_THREADS)]
    except OSError:
        return pid, first
    for thread in threads:
        other = _read(pid, f"{proc}/{pid}/task/{thread}")
        if other is not None and _has_memory(other):
            return thread, first._replace(program=other.program)
    return pid, first


def _read(pid: int, folder: str) -> Process | None:
    try:
        stat = os.open(f"{folder}/stat", os.O_RDONLY | os.O_CLOEXEC)  # half the cost of a file; every program is read
        try:
            # The name, in parentheses, may hold anything; the fields after it are numbers from the third on.
            fields = os.read(stat, _STAT_BYTES).rpartition(b")")[2].split()
        finally:
            os.close(stat)
        numbers = [int(fields[n - 3]) for n in (9, 22, 26, 28, 48)]
    except (OSError, ValueError, IndexError):
        return None
    return Process(pid, numbers[1], (numbers[2], numbers[3], numbers[4]), bool(numbers[0] & _PF_KTHREAD))


def _has_memory(thread: Process) -> bool:
    """Whether a thread has not ended. One that has just begun to execute a program may look as if it had."""
    return thread.kernel or thread.program[0] != 0


def start_ticks(monotonic_ns: int) -> int:
    """The `Process.start_ticks` of a process that began at that time of CLOCK_MONOTONIC, give or take one."""
    asleep_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return (monotonic_ns + asleep_ns) * TICKS // 1_000_000_000


def start_monotonic_ns(ticks: int) -> int:
    """The time of CLOCK_MONOTONIC at which a process with these `Process.start_ticks` began, or up to a tick before."""
    asleep_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return max(0, ticks * 1_000_000_000 // TICKS - asleep_ns)
