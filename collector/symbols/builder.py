"""Makes the SymbolFile messages of files in two child processes, which run while there is work: one opens files and
stores SymCaches (symcache_child.py), the other one reads the names in them (names_child.py)."""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from collector.guest.confined_child import MAX_STUCK
from collector.guest.confined_jobs import NOT_CONFINED
from collector.symbols import names_worker
from collector.symbols.symbol_files import SymbolFiles
from icestream.v1.symbols_pb2 import SymbolFile

CHUNK_BYTES = 850_000
MAX_COMPRESSED_BYTES = 64 << 20
"""The most bytes of a file sent through Kafka; larger ones need a symbol store."""

TIMEOUT_S = 120.0
LARGE_TIMEOUT_S = 300.0
"""For large files, which may take a minute of CPU: in the systemd unit, two children share half a CPU."""

MAX_STUCK_OF_USER = 2
"""A user may have so many files stuck that nobody else runs. Then no more of such files are read, so that they do not
take all of MAX_STUCK."""
_ENDING_S = 1.0
_TOO_MUCH = "the symbols take more memory or time than is allowed"
_NOT_CONFINED = "the process that reads symbols cannot be confined: the kernel lacks CONFIG_SECCOMP_FILTER"


class _Stuck(NamedTuple):
    """A child process that was killed and waits for a disk."""

    process: subprocess.Popen[bytes]
    users: tuple[int, ...]  # those who ran the file


class SymbolBuilder:
    """For one thread at a time, but for `interrupt`. `store`: folder or URI of the symbol store; "" sends chunks
    through Kafka. `timeout_s`: for one file."""

    def __init__(self, host_id: str, store: str, files: SymbolFiles, timeout_s: float = TIMEOUT_S) -> None:
        self._host_id = host_id
        self._store = store
        self._files = files
        self._timeout_s = timeout_s
        self._child: subprocess.Popen[bytes] | None = None
        self._worker: subprocess.Popen[bytes] | None = None
        self._stuck: list[_Stuck] = []
        self._users: tuple[int, ...] = ()  # those who run the file that was asked for last
        self._interrupted = False

    def answer(self, build_id: str, path: str, more: Sequence[str] = ()) -> Iterator[SymbolFile]:
        """Yields the message, or its chunks; a message with `error` if this host cannot provide the symbols. `path` (or
        "") and `more`: files beside those that processes mapped, see open_by_build_id."""
        self._users = self._files.users(build_id)
        with tempfile.TemporaryDirectory(prefix="icestream-symbols-") as folder, self._held(build_id) as held:
            compressed = os.path.join(folder, "symcache.zst")
            fields = self._run(
                {
                    "build_id": build_id, "owner": self._files.owner(build_id), "path": path,
                    "entries": self._files.entries(build_id), "more": [*more, *held], "store": self._store,
                    "compressed": compressed,
                }
            )  # fmt: skip
            if "error" in fields:
                yield SymbolFile(build_id=build_id, host_id=self._host_id, error=fields["error"])
            elif self._store:
                yield SymbolFile(build_id=build_id, host_id=self._host_id, **fields)
            elif (total := os.path.getsize(compressed)) > MAX_COMPRESSED_BYTES:
                error = f"{total} bytes of symbols are too many to go through Kafka: set a symbol store"
                yield SymbolFile(build_id=build_id, host_id=self._host_id, error=error)
            else:
                chunks = -(-total // CHUNK_BYTES)
                with open(compressed, "rb") as file:
                    for chunk in range(chunks):
                        yield SymbolFile(
                            build_id=build_id, host_id=self._host_id, chunk=chunk, chunks=chunks,
                            data=file.read(CHUNK_BYTES), **fields,
                        )  # fmt: skip

    def end_children(self) -> None:
        """Ends the child processes; the next `answer` starts others. Does not wait for one that waits for a disk."""
        for process in (self._child, self._worker):
            if process is None:
                continue
            process.kill()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
            try:
                process.wait(_ENDING_S)
            except subprocess.TimeoutExpired:
                self._stuck.append(_Stuck(process, self._users))
        self._child = self._worker = None

    def interrupt(self) -> None:
        """Kills the child processes for good: an `answer` that waits for them, and each later one, is an error. Any
        thread may call it; the builder's own thread still has to `rest`."""
        self._interrupted = True
        for process in (self._child, self._worker):
            if process is not None:
                process.kill()

    @contextmanager
    def _held(self, build_id: str) -> Iterator[list[str]]:
        """Yields the path by which the child can open the file if this process holds it open."""
        descriptor = self._files.open_held(build_id)
        try:
            yield [] if descriptor is None else [f"/proc/{os.getpid()}/fd/{descriptor}"]
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _run(self, job: dict[str, Any]) -> dict[str, Any]:
        """Returns the child's answer, or an error if it did not survive the job."""
        self._stuck = [stuck for stuck in self._stuck if stuck.process.poll() is None]
        same = sum(stuck.users == self._users for stuck in self._stuck)
        if len(self._stuck) >= MAX_STUCK or (len(self._users) == 1 and same >= MAX_STUCK_OF_USER):
            return {"error": "processes that were killed still wait for a disk"}
        child = self._child or self._start()
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(json.dumps(job).encode() + b"\n")
            child.stdin.flush()
            line = _read_line(child.stdout.fileno(), time.monotonic() + self._timeout_s)
            fields = json.loads(line)
        except (OSError, ValueError):
            confined = self._worker is None or self._worker.poll() != NOT_CONFINED
            self.end_children()
            return {"error": _TOO_MUCH if confined else _NOT_CONFINED}
        assert isinstance(fields, dict)
        return fields

    def _start(self) -> "subprocess.Popen[bytes]":
        self._worker, jobs = names_worker.start()
        with jobs:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "collector.symbols.symcache_child", str(jobs.fileno())],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/",
                pass_fds=[jobs.fileno()],
            )  # fmt: skip
        if self._interrupted:  # perhaps before they were known
            self.interrupt()
        return self._child


def _read_line(descriptor: int, deadline: float) -> bytes:
    """Reads a line from the child; b"" or a part of one if the child died or the time is over."""
    line, waiting = b"", select.poll()  # unlike select(2), of any descriptor
    waiting.register(descriptor, select.POLLIN)
    while not line.endswith(b"\n"):
        readable = waiting.poll(1000 * max(0.0, deadline - time.monotonic()))
        data = os.read(descriptor, 65_536) if readable else b""
        if not data:
            break
        line += data
    return line
