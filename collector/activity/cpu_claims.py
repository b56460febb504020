"""Bounds the CPU time that processes say their threads spent in contexts.

A process may say anything. The kernel knows how much CPU time it has used: no more is believed, over all its intervals.
Nor may a thread be in two contexts at a time: of intervals that overlap, the one that ended first keeps its time, so of
nested ones the inner one, and the outer one keeps what follows.
"""

import dataclasses
import os
import time
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from collector.activity.activity_datagram import ActivityDatagram
from collector.activity.thread_ids import HostThreads
from collector.guest.thread_time import process_clock
from icestream.process.byte_cache import ByteCache

_SECOND_NS = 1_000_000_000
_FIRST_NS = 10 * _SECOND_NS
"""A process may say that it used so much of each CPU before it was first heard. `icestream.tracing` keeps activity for
as long while no collector runs."""
_MOST_BYTES = 16_000_000  # of all processes; those that sent least recently are forgotten
_MOST_THREADS = 4096  # of a process; beyond, the half whose intervals ended first
_THREAD_BYTES = 150
_MOST_USERS = 1000


class Bounded(NamedTuple):
    """What is left of a datagram with n intervals."""

    datagram: ActivityDatagram
    kept: np.ndarray  # bool (n,): the intervals that are left
    overlapping: int  # intervals that were cut, or are not left
    unproven: int  # intervals with more CPU time than the process has used


@dataclass
class _Process:
    start_ticks: int | None
    claimed_ns: int
    ends: dict[int, int] = field(default_factory=dict)  # of the last interval of each thread, as the process calls it

    def begins(self, tid: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Where intervals begin (uint64) behind those of their thread that ended before."""
        begins, ends, last = start.tolist(), end.tolist(), self.ends
        # Where several end together, the inner one comes first, but one without length belongs behind the others.
        order = sorted(range(len(ends)), key=lambda row: (ends[row], begins[row] == ends[row], -begins[row]))
        threads = tid.tolist()
        for row in order:
            before = last.get(threads[row], 0)
            begins[row] = max(begins[row], before)
            last[threads[row]] = max(ends[row], before)
        if len(last) > _MOST_THREADS:
            for thread in sorted(last, key=last.__getitem__)[: len(last) - _MOST_THREADS // 2]:
                del last[thread]
        return np.array(begins, np.uint64)


class CpuClaims:
    """What each process has claimed. For one thread."""

    def __init__(self) -> None:
        self._cpus = os.cpu_count() or 1
        self._processes: ByteCache[int, _Process] = ByteCache(_MOST_BYTES, _size)
        self._ended: dict[int, int] = {}  # by user: until when the claims of processes that ended took all CPUs

    def bound(self, pid: int, uid: int, threads: HostThreads, said: ActivityDatagram) -> Bounded:
        """Bounds what process `pid` of user `uid` says of its threads."""
        used_ns = _used_ns(pid)
        process = self._processes.get(pid)
        if process is None or process.start_ticks != threads.start_ticks:
            process = _Process(threads.start_ticks, max(0, (used_ns or 0) - _FIRST_NS * self._cpus))
        start, end = said.start_monotonic_ns, said.start_monotonic_ns + said.duration_ns
        begins = process.begins(said.tid, start, end)
        kept = (begins < end) | (begins == start)
        duration = (end - begins)[kept]
        cpu = np.minimum(np.where(threads.foreign, 0, said.thread_cpu_ns)[kept], duration)
        wanted_ns = int(cpu.sum())
        if used_ns is None:
            believed_ns = self._of_ended(uid, wanted_ns)
        else:
            believed_ns = min(wanted_ns, max(0, used_ns - process.claimed_ns))
        process.claimed_ns += believed_ns
        self._processes.put(pid, process)
        sums = np.minimum(cpu.cumsum(), np.uint64(believed_ns))
        believed = cpu if believed_ns == wanted_ns else np.diff(sums, prepend=np.uint64(0))
        bounded = dataclasses.replace(
            said, start_monotonic_ns=begins[kept], duration_ns=duration, thread_cpu_ns=believed, tid=said.tid[kept],
            context=said.context[kept],
        )  # fmt: skip
        return Bounded(bounded, kept, int(np.count_nonzero(begins != start)), int(np.count_nonzero(believed < cpu)))

    def _of_ended(self, uid: int, wanted_ns: int) -> int:
        """How much CPU time is believed of a process whose clock is gone: of all those of a user together, no more than
        the CPUs of this host give in that time, and a second's worth at once."""
        now = time.monotonic_ns()
        until = max(self._ended.pop(uid, 0), now - _SECOND_NS)
        allowed_ns = min(wanted_ns, (now - until) * self._cpus)
        self._ended[uid] = until + allowed_ns // self._cpus
        if len(self._ended) > _MOST_USERS:
            del self._ended[next(iter(self._ended))]
        return allowed_ns


def _used_ns(pid: int) -> int | None:
    """The CPU time that a process has used, with all its threads; None if it ended."""
    try:
        return time.clock_gettime_ns(process_clock(pid))
    except OSError:
        return None


def _size(pid: int, process: _Process) -> int:
    return _THREAD_BYTES * len(process.ends)
