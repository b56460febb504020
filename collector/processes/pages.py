"""Reads pages of other processes, by a child process of the calling thread (memory_child.py).

Waits for the child, however long a page takes: so call it in what memory.patiently runs.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Sequence

from collector.guest.confined_child import start
from collector.guest.confined_jobs import MAX_MESSAGE_BYTES
from collector.guest.thread_time import process_clock
from collector.processes.memory_child import AREA, LENGTH, MAX_BYTES, SIZE
from collector.processes.patience import waits_at
from collector.processes.process import folder_of

COMMAND = ["-m", "collector.processes.memory_child"]
_START_S = 30.0
"""A child has to wait for a CPU and for a disk before its first answer; more is no busy host."""
_own = threading.local()  # `child`, of the thread
_asked: dict[int, "Child"] = {}  # by the thread that waits for an answer


class Child:
    """Ends with the socket of its jobs."""

    def __init__(self) -> None:
        self.process, self._jobs = start(COMMAND)
        self._started, self._ready = time.monotonic(), False

    def ask(self, job: bytes, descriptors: Sequence[int]) -> bytes:
        """Raises OSError if the child has ended."""
        self._ready = self._ready or bool(self._jobs.recv(MAX_MESSAGE_BYTES))
        socket.send_fds(self._jobs, [job], descriptors)
        answer = self._jobs.recv(MAX_MESSAGE_BYTES)
        if not answer:
            raise ConnectionResetError("the child that reads memory has ended")
        return answer

    def waits_at(self) -> float | None:
        """As patience.waits_at."""
        if not self._ready:
            return self._started if time.monotonic() - self._started > _START_S else None
        clock = process_clock(self.process.pid)
        return waits_at(f"/proc/{self.process.pid}", lambda: time.clock_gettime(clock))

    def __del__(self) -> None:
        if hasattr(self, "process"):
            self._jobs.close()
            self.process.kill()
            self.process.poll()


def read(pid: int, areas: Sequence[tuple[int, int]]) -> list[bytes | None]:
    """Returns the bytes of each area (address, size): None for one that cannot be read completely, and for all from the
    one on with which there are more than MAX_BYTES. Raises OSError: of open(2) for /proc/PID/mem, or of the child."""
    total, count = 0, 0
    while count < len(areas) and (total := total + areas[count][1]) <= MAX_BYTES:
        count += 1
    request = b"".join(AREA.pack(*area) for area in areas[:count])
    with contextlib.ExitStack() as opened:
        memory = os.open(f"{folder_of(pid)}/mem", os.O_RDONLY | os.O_CLOEXEC)
        opened.callback(os.close, memory)
        target = os.memfd_create("memory", os.MFD_CLOEXEC)
        opened.callback(os.close, target)
        os.pwrite(target, request, 0)
        (size,) = SIZE.unpack(_ask(SIZE.pack(len(request)), (memory, target)))
        data = os.pread(target, size, 0)
    at, contents = count * LENGTH.size, list[bytes | None]()
    for (length,) in LENGTH.iter_unpack(data[:at]):
        contents.append(None if length < 0 else data[at : at + length])
        at += max(length, 0)
    return contents + [None] * (len(areas) - count)


def asked_by(thread: int) -> Child | None:
    """The child for whose answer a thread waits."""
    return _asked.get(thread)


def _ask(job: bytes, descriptors: Sequence[int]) -> bytes:
    thread = threading.get_native_id()
    child: Child | None = getattr(_own, "child", None)
    while True:
        fresh = child is None
        _asked[thread] = _own.child = child = child or Child()
        try:
            return child.ask(job, descriptors)
        except OSError:
            child = None
            del _own.child
            if fresh:  # another one had just ended, because it was idle
                raise
        finally:
            del _asked[thread]
