"""A child process that does jobs with what strangers wrote (confined_jobs.py is its side). It runs while there is
work."""

import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from collector.guest.confined_jobs import MAX_MESSAGE_BYTES, NOT_CONFINED

log = logging.getLogger(__name__)

MAX_STUCK = 8
_ENDING_S = 10.0
_LOOK_S = 0.01


class NoChildError(OSError):
    """There is no child for the job: it was closed, cannot be confined or started now, or too many wait for a disk."""


class ConfinedChild:
    """One thread at a time may call `run`, any thread `close`."""

    def __init__(self, command: Sequence[str], timeout_s: float, missing: str) -> None:
        """`command`: arguments of the Python interpreter. `timeout_s`: for one job, and for the start.
        `missing`: what there is not, where the kernel cannot confine the child."""
        self.command = command
        self.timeout_s = timeout_s
        self._missing = missing
        self._lock = threading.Lock()
        self._closed = False
        self.process: subprocess.Popen[bytes] | None = None
        self._jobs: socket.socket | None = None
        self._ready = False
        self._ready_by = 0.0
        self._stuck: list[subprocess.Popen[bytes]] = []

    def run(self, job: bytes, descriptors: Sequence[int]) -> bytes:
        """Returns the child's answer; b"" if it did not survive the job, or took too long. Raises OSError, and
        NoChildError where the job was not begun."""
        if self._many_stuck():
            raise NoChildError(f"{MAX_STUCK} processes that were killed still wait for a disk")
        for _ in range(2):  # the child may just have ended because it was idle
            with self._lock:
                if self._closed:
                    raise NoChildError("the child is closed")
                jobs, process = self._started()
            answer = b""
            try:
                self._await_start(jobs)
                jobs.settimeout(self.timeout_s)
                socket.send_fds(jobs, [job], descriptors)
                answer = jobs.recv(MAX_MESSAGE_BYTES)
            except NoChildError:
                raise
            except TimeoutError:
                self._stuck.append(process)  # waiting for its end would wait for the disk that it may wait for
                self.stop()
                return b""
            except OSError:
                pass
            if answer:
                return answer
            status = _wait(process)
            self.stop()
            if status == NOT_CONFINED:
                self._give_up()
                raise NoChildError("the child cannot be confined")
            if status != 0:
                break
        return b""

    def _await_start(self, jobs: socket.socket) -> None:
        """A start that takes long, because the host has no CPU time for it, is no fault of a job: it goes on, and later
        jobs hardly wait for it. Raises NoChildError then, and ConnectionError if the child has ended."""
        if self._ready:
            return
        jobs.settimeout(max(_LOOK_S, self._ready_by - time.monotonic()))
        try:
            self._ready = bool(jobs.recv(MAX_MESSAGE_BYTES))
        except TimeoutError:
            raise NoChildError("the child is still being started") from None
        if not self._ready:
            raise ConnectionError("the child ended before it was ready")

    def _many_stuck(self) -> bool:
        """Whether many children were killed and still wait for a disk. Each keeps its memory, so no more should be
        risked."""
        self._stuck = [process for process in self._stuck if process.poll() is None]
        return len(self._stuck) >= MAX_STUCK

    def stop(self) -> None:
        """Ends the child; the next `run` starts another."""
        with self._lock:
            self._end()

    def close(self) -> None:
        """Ends the child for good, and a `run` that waits for it."""
        with self._lock:
            self._closed = True
            self._end()

    def _give_up(self) -> None:
        with self._lock:
            complain, self._closed = not self._closed, True
        if complain:
            log.warning(
                "%s: the process that reads such files cannot be confined, because the kernel lacks"
                " CONFIG_SECCOMP_FILTER",
                self._missing,
            )

    def _started(self) -> tuple[socket.socket, "subprocess.Popen[bytes]"]:
        if self.process is None or self._jobs is None or self.process.poll() is not None:
            self._end()
            self._ready, self._ready_by = False, time.monotonic() + self.timeout_s
            self.process, self._jobs = start(self.command)
            try:  # a thread reaps the child when it ends by itself
                threading.Thread(target=self.process.wait, name="confined-child", daemon=True).start()
            except RuntimeError as error:
                self._stuck.append(self.process)
                self._end()
                raise NoChildError(str(error)) from error
        return self._jobs, self.process

    def _end(self) -> None:
        if self.process is not None:
            self.process.kill()
        if self._jobs is not None:
            with contextlib.suppress(OSError):
                self._jobs.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for an answer
            self._jobs.close()
        self.process = self._jobs = None


def start(command: Sequence[str]) -> tuple["subprocess.Popen[bytes]", socket.socket]:
    """Starts a process that serves jobs (confined_jobs.py). `command`: arguments of the Python interpreter. Returns the
    process, and the socket for its jobs. Raises OSError."""
    jobs, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        try:
            process = subprocess.Popen(
                [sys.executable, *command],
                stdin=theirs.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # not memory for a thread on each CPU
            )  # fmt: skip
        except OSError:
            jobs.close()
            raise
    return process, jobs


def _wait(process: "subprocess.Popen[bytes]") -> int | None:
    """The exit code of a child that is ending; None if it takes long."""
    try:
        return process.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        return None
