"""Translates the thread IDs that processes send into the host's, and checks them.

A process may say anything: IDs of threads that are not its own, or do not exist yet, and times before it began, when
another process may have had its ID. Only threads that were seen are remembered: one that begins later may be another
process's.
"""

import os
import time
from typing import NamedTuple

import numpy as np

from collector.activity.quotas import user_share
from collector.activity.read_pauses import ReadPauses
from collector.processes.process import TICKS, read_process
from icestream.process.byte_cache import ByteCache

_KEPT_SECONDS = 60.0
_FORGET_SECONDS = 10.0
"""How often processes that were kept for long enough are looked for, so that very many short ones cost little each."""
_MOST_BYTES = 16_000_000
"""What all processes may take. Those that sent least recently are forgotten, and looked at again when they send."""
_MOST_THREADS = 30_000  # of a process; one that is read anew may have twice as many, which _MOST_BYTES allows
_PROCESS_BYTES = 1000
_THREAD_BYTES = 250
"""About what a thread takes: an entry of a dictionary and of a set, and two numbers."""
_MOST_UNKNOWN = 1024  # threads that one datagram may make us look for
_GONE_NS = 1_000_000_000
"""A process that ended before it was seen has intervals of its last second only: its ID may have been another's."""


class HostThreads(NamedTuple):
    """The threads in n intervals."""

    tid: np.ndarray
    """uint32 (n,): 0 for threads of other processes, for intervals that started before the process, and for threads in
    another PID namespace that ended before they were seen."""
    foreign: np.ndarray  # bool (n,): certainly none of the process
    start_ticks: int | None  # as in Process; None if it ended before it was seen


class ThreadIds:
    """The threads of the processes that sent something."""

    def __init__(self) -> None:
        self._own = _namespace(os.getpid())
        self._processes: ByteCache[int, _Process] = ByteCache(_MOST_BYTES, _size)
        self._pauses = ReadPauses(user_share(os.cpu_count() or 1))
        self._forgot = -_FORGET_SECONDS  # time.monotonic

    def of_host(
        self, pid: int, uid: int, tids: np.ndarray, starts_monotonic_ns: np.ndarray, claimed_pid: int
    ) -> HostThreads:
        """Looks for the threads of process `pid` of user `uid`, which calls itself `claimed_pid`, in n intervals."""
        process = self._process(pid, claimed_pid)
        distinct, inverse = np.unique(tids, return_inverse=True)
        wanted = distinct.tolist()
        if not process.same and not process.tids.keys() >= set(wanted):
            self._read(pid, uid, process)
        ended = process.ended(pid, wanted) if process.same else set()
        self._processes.put(pid, process)  # its size has changed
        translated = np.array([process.tids.get(tid, tid if tid in ended else 0) for tid in wanted], np.uint32)
        tid = np.where(starts_monotonic_ns >= max(0, process.began_ns), translated[inverse], np.uint32(0))
        return HostThreads(tid, (tid == 0) & process.same, process.start_ticks)

    def _read(self, pid: int, uid: int, process: "_Process") -> None:
        """Reads the threads of a process, unless it or its user has to wait."""
        if not self._pauses.allow(pid, process.start_ticks, uid):
            return
        began = time.monotonic()
        process.read(pid)
        self._pauses.add(pid, process.start_ticks, uid, began)

    def _process(self, pid: int, claimed_pid: int) -> "_Process":
        now = time.monotonic()
        process, running = self._processes.get(pid), read_process(pid)
        start_ticks = running.start_ticks if running else process.start_ticks if process else None
        if (
            process is None
            or (process.claimed_pid, process.start_ticks) != (claimed_pid, start_ticks)
            or now - process.since > _KEPT_SECONDS
        ):
            self._forget(now)
            same = claimed_pid == pid and _namespace(pid) in (self._own, None)
            process = _Process(claimed_pid, same, now, start_ticks)
        return process

    def _forget(self, now: float) -> None:
        if now - self._forgot < _FORGET_SECONDS:
            return
        self._forgot = now
        for pid, known in self._processes.items():
            if now - known.since > _KEPT_SECONDS:
                self._processes.pop(pid)


class _Process:
    """What is known of a process since a moment."""

    def __init__(self, claimed_pid: int, same: bool, since: float, start_ticks: int | None) -> None:
        self.claimed_pid = claimed_pid
        self.same = same  # the IDs it sees are the host's
        self.since = since
        self.start_ticks = start_ticks  # None: it ended before it was seen
        self.began_ns = _began_ns(start_ticks)  # CLOCK_MONOTONIC
        self.tids: dict[int, int] = {}  # threads that were seen; also those that ended: their activity comes later
        self._of_host: set[int] = set()

    def ended(self, pid: int, tids: list[int]) -> set[int]:
        """Looks for threads that are new. Returns those that no process has now, so they may be its own and ended."""
        if len(self.tids) > _MOST_THREADS:
            self.tids.clear()
        ended = set()
        for tid in [tid for tid in tids if tid not in self.tids][:_MOST_UNKNOWN]:
            if os.path.exists(f"/proc/{pid}/task/{tid}"):
                self.tids[tid] = tid
            elif not os.path.exists(f"/proc/{tid}"):
                ended.add(tid)
        return ended

    def read(self, pid: int) -> None:
        """Reads its threads with the IDs that it sees itself (proc(5): NSpid)."""
        if len(self._of_host) > _MOST_THREADS:
            self._of_host.clear()
            self.tids.clear()
        try:
            for name in os.listdir(f"/proc/{pid}/task")[:_MOST_THREADS]:
                if int(name) not in self._of_host:
                    self._read_thread(pid, int(name))
        except OSError:  # the process ended
            return

    def _read_thread(self, pid: int, tid: int) -> None:
        try:
            with open(f"/proc/{pid}/task/{tid}/status", "rb") as status:
                for line in status:
                    if line.startswith(b"NSpid:"):
                        self.tids[int(line.split()[-1])] = tid
                        self._of_host.add(tid)
                        return
        except OSError:  # the thread ended
            return


def _size(pid: int, process: _Process) -> int:
    return _PROCESS_BYTES + _THREAD_BYTES * len(process.tids)


def _began_ns(start_ticks: int | None) -> int:
    """CLOCK_MONOTONIC when the process began, or a little earlier."""
    if start_ticks is None:
        return time.monotonic_ns() - _GONE_NS
    asleep_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return (start_ticks - 1) * 1_000_000_000 // TICKS - asleep_ns


def _namespace(pid: int) -> int | None:
    """The PID namespace's inode; None where it cannot be seen."""
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return None
