"""Reads the kernel's memory without knowing its structures: with a program that runs on ticks of the requesting thread
(bpf/task_layout.bpf.c), in threads and child processes.
"""

import json
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from collector.bpf.loaders.libbpf import LibbpfLoader
from collector.bpf.loaders.loader import LoadError
from collector.bpf.perf_event import open_clock

SOURCE = Path(__file__).resolve().parents[3] / "bpf" / "task_layout.bpf.c"
PIECE = 1024  # bytes that the program copies at a time

_HEAD = struct.Struct("=12Q")  # struct look, without the bytes
_TICK_NS = 20_000
_PATIENCE_S = 10.0  # with one tick

Rows = set[tuple[int, ...]]
Candidates = dict[str, Rows]
"""Where fields may be: rows of offsets, by the name of the first field of a row."""


@dataclass(frozen=True)
class ReaderProgram:
    """The loaded program, and the memory that it shares with its users. One `KernelReader` uses it at a time."""

    fd: int
    memory: mmap.mmap


@contextmanager
def load_reader() -> Iterator[ReaderProgram]:
    """Loads the program, which needs no BTF. Raises LoadError."""
    program = LibbpfLoader(needs_btf=False).load(SOURCE, "answer", {})
    try:
        with mmap.mmap(program.map_fd("look"), mmap.PAGESIZE) as memory:
            yield ReaderProgram(program.fd, memory)
    except (OSError, ValueError) as error:
        raise LoadError(f"the kernel's memory cannot be read: {error}") from error
    finally:
        program.close()


class KernelReader:
    """Reads memory for the thread that creates it. A context manager. Raises OSError and LoadError."""

    def __init__(self, program: ReaderProgram) -> None:
        self._memory = program.memory
        self._clock = open_clock(program.fd, _TICK_NS, cpu=-1, pid=0)
        self.task = self.tgid = self.pid = 0
        """The address of this thread's task_struct; its IDs in the host's namespace."""
        self.registers: tuple[int, ...] = ()
        """ip, cs, flags, sp and ss at the last read."""
        self.read(0, 8)

    def __enter__(self) -> "KernelReader":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._clock)

    def number(self, address: int) -> int | None:
        """Returns the 32 bits at an address; None if they cannot be read."""
        return next(iter(memoryview(self.read(address, 4)).cast("I")), None)

    def read(self, address: int, size: int) -> bytes:
        """Returns up to `size` bytes: less if the memory ends before."""
        read = b""
        while len(read) < size:
            piece = self._piece(address + len(read))
            if piece is None:
                break
            read += piece
        return read[:size]

    def _piece(self, address: int) -> bytes | None:
        requested = _HEAD.unpack_from(self._memory)[0] + 1
        struct.pack_into("=Q", self._memory, 8, address % (1 << 64))
        struct.pack_into("=Q", self._memory, 0, requested)  # last: from here on the program answers
        until = time.monotonic() + _PATIENCE_S
        while (answer := _HEAD.unpack_from(self._memory))[2] != requested:
            if time.monotonic() > until:
                raise LoadError("the clock of a thread does not tick (perf_event, software cpu-clock)")
        failed, self.task, ids = answer[3:6]
        self.tgid, self.pid, self.registers = ids >> 32, ids & 0xFFFF_FFFF, answer[6:11]
        return None if failed else self._memory[_HEAD.size : _HEAD.size + PIECE]


def in_thread(observe: Callable[[], Candidates]) -> Candidates:
    """Calls `observe` in another thread. Raises LoadError if it fails."""
    results: list[Candidates] = []
    thread = threading.Thread(target=lambda: results.append(observe()))
    thread.start()
    thread.join()
    if not results:
        raise LoadError("a thread could not read its task_struct")
    return results[0]


def in_child(observe: Callable[[], Candidates]) -> Candidates:
    """Calls `observe` in a forked child process. Raises LoadError if it fails."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            candidates = {name: sorted(rows) for name, rows in observe().items()}
            os.write(writer, json.dumps(candidates).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    if not answer:
        raise LoadError("a child process could not read its task_struct")
    return {name: {tuple(row) for row in rows} for name, rows in json.loads(answer).items()}
