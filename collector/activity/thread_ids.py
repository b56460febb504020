"""Translates the thread IDs that processes send into the host's, and checks them."""

import os
import time

import numpy as np

_AGAIN_SECONDS = 0.01
_KEPT_SECONDS = 60.0
_MOST_THREADS = 100_000


class ThreadIds:
    """The threads of the processes that sent something."""

    def __init__(self) -> None:
        self._own = _namespace(os.getpid())
        self._processes: dict[int, _Process] = {}

    def of_host(self, pid: int, tids: np.ndarray, claimed_pid: int) -> np.ndarray:
        """uint32 (n,): IDs of the threads of process `pid`, which calls itself `claimed_pid`.

        0 for threads of other processes, and for threads in another PID namespace that ended before they were seen.
        """
        process = self._process(pid, claimed_pid)
        distinct, inverse = np.unique(tids, return_inverse=True)
        wanted = distinct.tolist()
        if process.same:
            process.check(pid, wanted)
        elif not process.tids.keys() >= set(wanted):
            process.read(pid)
        translated = np.array([process.tids.get(tid, 0) for tid in wanted], np.uint32)
        return translated[inverse]

    def _process(self, pid: int, claimed_pid: int) -> "_Process":
        now = time.monotonic()
        process = self._processes.get(pid)
        if process is None or process.claimed_pid != claimed_pid or now - process.since > _KEPT_SECONDS:
            for gone in [p for p, known in self._processes.items() if now - known.since > _KEPT_SECONDS]:
                del self._processes[gone]
            namespace = _namespace(pid)
            same = claimed_pid == pid and namespace in (self._own, None)
            process = self._processes[pid] = _Process(claimed_pid, same, now)
        return process


class _Process:
    """What is known of a process since a moment."""

    def __init__(self, claimed_pid: int, same: bool, since: float) -> None:
        self.claimed_pid = claimed_pid
        self.same = same  # the IDs it sees are the host's
        self.since = since
        self.tids: dict[int, int] = {}  # keeps threads that ended: their activity comes later
        self._read_at = 0.0

    def check(self, pid: int, tids: list[int]) -> None:
        """Checks threads that are new: whether they are its own, or have ended."""
        if len(self.tids) > _MOST_THREADS:
            self.tids.clear()
        for tid in tids:
            if tid not in self.tids:
                own = os.path.exists(f"/proc/{pid}/task/{tid}") or not os.path.exists(f"/proc/{tid}")
                self.tids[tid] = tid if own else 0

    def read(self, pid: int) -> None:
        """Reads its threads with the IDs that it sees itself (proc(5): NSpid), but not too often."""
        now = time.monotonic()
        if now - self._read_at < _AGAIN_SECONDS:
            return
        self._read_at = now
        try:
            for tid in os.listdir(f"/proc/{pid}/task"):
                if int(tid) not in self.tids.values():
                    self._read_thread(pid, int(tid))
        except OSError:  # the process ended
            return

    def _read_thread(self, pid: int, tid: int) -> None:
        try:
            with open(f"/proc/{pid}/task/{tid}/status", "rb") as status:
                for line in status:
                    if line.startswith(b"NSpid:"):
                        self.tids[int(line.split()[-1])] = tid
                        return
        except OSError:  # the thread ended
            return


def _namespace(pid: int) -> int | None:
    """The PID namespace's inode; None where it cannot be seen."""
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return None
