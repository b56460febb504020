"""Builds unwinding tables in a child process (child.py), which runs while there is work."""

import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading

from collector.unwind import table as unwind_table
from collector.unwind.child import DONE, MAX_MESSAGE_BYTES, MAX_TABLE_BYTES, NOT_CONFINED
from collector.unwind.table import UnwindTable

log = logging.getLogger(__name__)

COMMAND = ["-m", "collector.unwind.child"]
TIMEOUT_S = 600.0
"""Until a table is given up. The child's CPU time is limited as well, but on a busy host it gets little of it."""


class BuildError(RuntimeError):
    """The child built no table of this file; the message says why."""


class UnwindBuilder:
    """One thread at a time may call `build`, any thread `close`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._complained = False
        self._child: subprocess.Popen[bytes] | None = None
        self._jobs: socket.socket | None = None

    def build(self, key: str, descriptor: int) -> tuple[UnwindTable, bytes]:
        """Returns the table of an open ELF file, and its bytes as they are stored under `key`. Raises BuildError."""
        target = os.memfd_create("unwind-table", os.MFD_CLOEXEC)
        try:
            answer = self._run(key.encode(), descriptor, target)
            if answer != DONE:
                raise BuildError(answer.decode("utf-8", "replace") or "it takes more memory or time than is allowed")
            size = os.fstat(target).st_size
            data = os.pread(target, min(size, MAX_TABLE_BYTES), 0)
            return unwind_table.from_bytes(data, key), data
        except (OSError, ValueError) as error:
            raise BuildError(f"the table cannot be read: {error}") from error
        finally:
            os.close(target)

    def close(self) -> None:
        """Ends the child, and a `build` that waits for it."""
        with self._lock:
            self._closed = True
            self._end()

    def _run(self, key: bytes, source: int, target: int) -> bytes:
        """Returns the child's answer; b"" if it did not survive the job."""
        for _ in range(2):  # the child may just have ended because it was idle
            jobs, child = self._started()
            answer = b""
            with contextlib.suppress(OSError):
                socket.send_fds(jobs, [key], [source, target])
                answer = jobs.recv(MAX_MESSAGE_BYTES)
            if answer:
                return answer
            with self._lock:
                self._end()
            if (status := child.wait()) != 0:
                self._complain(status)
                break
        return b""

    def _complain(self, status: int) -> None:
        """Says once why no file gets a table."""
        if status == NOT_CONFINED and not self._complained:
            self._complained = True
            log.warning(
                "the process that builds the unwinding tables of large files cannot be confined, so their stacks are"
                " cut: the kernel needs CONFIG_SECCOMP_FILTER"
            )

    def _started(self) -> tuple[socket.socket, "subprocess.Popen[bytes]"]:
        with self._lock:
            if self._closed:
                raise BuildError("the collector is ending")
            if self._child is None or self._jobs is None or self._child.poll() is not None:
                self._end()
                self._jobs, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self._jobs.settimeout(TIMEOUT_S)
                with theirs:
                    self._child = subprocess.Popen(
                        [sys.executable, *COMMAND],
                        stdin=theirs.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
                        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # not memory for a thread on each CPU
                    )  # fmt: skip
                # Reaps the child when it ends by itself.
                threading.Thread(target=self._child.wait, name="unwind-child", daemon=True).start()
            return self._jobs, self._child

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
        if self._jobs is not None:
            with contextlib.suppress(OSError):
                self._jobs.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for an answer
            self._jobs.close()
        self._child = self._jobs = None
