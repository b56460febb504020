"""The CPU time that the collector takes: its process, its children, and the eBPF programs.

The kernel measures eBPF programs only on demand (bpf(2), BPF_ENABLE_STATS). That slows down all programs of the host a
little and needs CAP_SYS_ADMIN, so the collector demands it only at the start. After that, a program's time is the
number of its runs times the average time of one; or what the kernel measures, if somebody else keeps it measuring.
"""

import contextlib
import ctypes
import os
import platform
import resource
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

MEASURE_S = 30.0
_DEFAULT_RUN_NS = 10_000.0
_ENOUGH_RUNS = 50
_SYSCALL = {"x86_64": 321, "aarch64": 280}
_BPF_ENABLE_STATS, _RUN_TIME = 32, 0


def process_seconds() -> float:
    """The CPU time so far of this process and of its children, those that ended and those that live."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) + sum(map(seconds_of, _living_children()))


def _living_children() -> Iterator[int]:
    """Process IDs of the children; none where the kernel does not list them (CONFIG_PROC_CHILDREN)."""
    for tid in os.listdir("/proc/self/task"):
        # The thread may have ended.
        with contextlib.suppress(OSError), open(f"/proc/self/task/{tid}/children", "rb") as children:
            yield from map(int, children.read().split())


def seconds_of(pid: int) -> float:
    """CPU time of a process: utime and stime in /proc/PID/stat, see proc(5)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[14 - 3]) + int(fields[15 - 3])) / os.sysconf("SC_CLK_TCK")


class ProgramTime:
    """The CPU time of an eBPF program. `stats` returns totals: `observed`, `run_time_ns`, `run_count`
    (Sampler.stats)."""

    def __init__(self, stats: Callable[[], dict[str, int]], run_ns: float = _DEFAULT_RUN_NS) -> None:
        """`run_ns` is the time of one run, until it was measured."""
        self._stats = stats
        self._until = time.monotonic() + MEASURE_S
        self._measuring = enable_stats()
        self._before = self._measured = stats()
        self._run_ns = run_ns
        self._total_ns = 0.0

    def seconds(self) -> float:
        """The CPU time so far."""
        now = self._stats()
        runs = now["run_count"] - self._measured["run_count"]
        if runs >= _ENOUGH_RUNS:
            self._run_ns = (now["run_time_ns"] - self._measured["run_time_ns"]) / runs
            self._measured = now
        self._total_ns += (now["observed"] - self._before["observed"]) * self._run_ns
        self._before = now
        if time.monotonic() >= self._until:
            self.close()
        return self._total_ns / 1e9

    def close(self) -> None:
        """Lets the kernel stop measuring."""
        fd, self._measuring = self._measuring, None
        if fd is not None:
            with contextlib.suppress(OSError):
                os.close(fd)


def enable_stats() -> int | None:
    """Makes the kernel measure eBPF programs until the descriptor is closed; None where it does not permit that."""
    number = _SYSCALL.get(platform.machine())
    if number is None:
        return None
    attributes = ctypes.create_string_buffer(struct.pack("=I", _RUN_TIME))
    fd: int = ctypes.CDLL(None, use_errno=True).syscall(number, _BPF_ENABLE_STATS, attributes, ctypes.c_uint(4))
    return fd if fd >= 0 else None
