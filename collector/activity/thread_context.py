"""Finds the processes that publish OpenTelemetry thread contexts, and gives the sampler the offsets.

A process publishes by defining the thread-local variable `otel_thread_ctx_v1` (OTEP 4947) in a file it maps. A library
with it may be loaded at any time. So a process is looked at when it is first sampled, 1, 2 and 5 seconds later, and
then every 30 seconds while it is sampled. If it shows otherwise that it is traced, it is looked at soon, but at most
once a second. A look reads /proc/PID/maps and the status of each file with code, which takes about 0.1 ms. Whether a
file has the variable is remembered. One call spends at most LOOK_SECONDS and leaves the rest to the next. A process
that takes long, with tens of thousands of mappings, is looked at more rarely.
"""

import logging
import os
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from collector.activity.tls_symbol import TlsSymbol, find
from collector.bpf.program import Image, image_of
from collector.bpf.sampler import SamplerError

VARIABLE = b"otel_thread_ctx_v1"
LOOK_SECONDS = 0.02
MAX_FILES = 16_384  # remembered
MAX_PROCESSES = 16_384

_LOOK_AGAIN = (1.0, 2.0, 5.0, 30.0)  # seconds after the previous look; the last one repeats
_NOTICE_SECONDS = 1.0
_PAUSE_PER_COST = 200  # a process takes at most 0.5 % of a CPU
_SWEEP_SECONDS = 30.0

log = logging.getLogger(__name__)


@dataclass
class _Process:
    due: float
    looked: float = float("-inf")
    looks: int = 0
    pause: float = _NOTICE_SECONDS  # seconds to the next look at least
    offset: int | None = None


@dataclass
class _File:
    """What a process maps of one file with code."""

    start: int
    offset: int
    path: str
    code: tuple[int, int] | None = None  # addresses of the first mapping with code


@dataclass
class ThreadContexts:
    """`set_context(pid, offset, image)` and `forget(pid)` are the sampler's."""

    set_context: Callable[[int, int, Image], None]
    forget: Callable[[int], None]
    clock: Callable[[], float] = time.monotonic
    _processes: dict[int, _Process] = field(default_factory=dict)
    _noticed: set[int] = field(default_factory=set)
    _files: dict[tuple[int, ...], TlsSymbol | None] = field(default_factory=dict)
    _swept: float = float("-inf")

    def observe(self, pids: Iterable[int] = ()) -> None:
        """Looks at those of the sampled processes (each given once) that are due, and at noticed ones.

        Call it with every drain, and about every second without processes.
        """
        now = self.clock()
        self._sweep(now)
        due_pids = [(self._process(pid, now).due, pid) for pid in {*pids, *self._noticed}]
        for due, pid in sorted(due_pids):
            if due > now or self.clock() - now > LOOK_SECONDS:
                break
            self._noticed.discard(pid)
            self._look(pid)

    def notice(self, pid: int) -> None:
        """A process shows that it is traced, for example by sending activity: the next `observe` looks at it first."""
        process = self._process(pid, self.clock())
        if process.offset is None and self.clock() - process.looked >= process.pause:
            process.due = float("-inf")
            self._noticed.add(pid)

    def publishing(self) -> dict[int, int]:
        """Process -> offset of its variable from the thread pointer."""
        return {pid: process.offset for pid, process in self._processes.items() if process.offset is not None}

    def _process(self, pid: int, now: float) -> _Process:
        if pid not in self._processes and len(self._processes) >= MAX_PROCESSES:
            self._drop(next(iter(self._processes)))
        return self._processes.setdefault(pid, _Process(due=now))

    def _look(self, pid: int) -> None:
        process, now = self._process(pid, self.clock()), self.clock()
        self._find(pid, process)
        process.pause = max(_NOTICE_SECONDS, _PAUSE_PER_COST * (self.clock() - now))
        process.due = now + max(process.pause, _LOOK_AGAIN[min(process.looks, len(_LOOK_AGAIN) - 1)])
        process.looks, process.looked = process.looks + 1, now

    def _find(self, pid: int, process: _Process) -> None:
        try:
            image = image_of(pid)  # before the look: if the process executes another program meanwhile, nothing is read
            offset = self._offset(pid)
        except (FileNotFoundError, ProcessLookupError):
            self._drop(pid)
            return
        except OSError as error:
            log.debug("process %d cannot be looked at: %s", pid, error)
            return
        try:
            if offset is not None:
                self.set_context(pid, offset, image)
            elif process.offset is not None:
                self.forget(pid)
            process.offset = offset
        except SamplerError as error:
            log.warning("%s", error)

    def _offset(self, pid: int) -> int | None:
        """Raises OSError."""
        for file in mapped_files(pid):
            symbol = self._symbol(pid, file)
            if symbol is None or (bias := symbol.bias(file.start, file.offset)) is None:
                continue
            with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
                offset = symbol.offset(
                    lambda at, size: os.pread(memory.fileno(), size, at), bias, _is_executable(pid, file)
                )
            if offset is not None:
                return offset
        return None

    def _symbol(self, pid: int, file: _File) -> TlsSymbol | None:
        """None, too, where the file cannot be read."""
        try:
            path, status = _status(pid, file)
            key = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
            if key not in self._files:
                if len(self._files) >= MAX_FILES:
                    del self._files[next(iter(self._files))]
                self._files[key] = _read(path) if stat.S_ISREG(status.st_mode) else None
            return self._files[key]
        except OSError:
            return None

    def _sweep(self, now: float) -> None:
        """Forgets processes that ended."""
        if now - self._swept < _SWEEP_SECONDS:
            return
        self._swept = now
        for pid in [pid for pid in self._processes if not os.path.exists(f"/proc/{pid}")]:
            self._drop(pid)

    def _drop(self, pid: int) -> None:
        process = self._processes.pop(pid)
        self._noticed.discard(pid)
        if process.offset is not None:
            self.forget(pid)


def mapped_files(pid: int) -> list[_File]:
    """The files with code that a process maps, each from its first mapping on. Raises OSError."""
    with open(f"/proc/{pid}/maps", "rb") as maps:
        lines = maps.read().splitlines()
    files: dict[bytes, _File] = {}
    for line in lines:
        addresses, modes, offset, device, inode, *path = line.split(None, 5)
        if inode == b"0" or not path:
            continue
        start, _, end = addresses.partition(b"-")
        file = files.setdefault(device + inode, _File(int(start, 16), int(offset, 16), os.fsdecode(path[0])))
        if b"x" in modes and file.code is None:
            file.code = (int(start, 16), int(end, 16))
    return [file for file in files.values() if file.code]


def _status(pid: int, file: _File) -> tuple[str, os.stat_result]:
    """A path that opens the file: also if deleted or in another mount namespace, which needs CAP_SYS_ADMIN."""
    assert file.code
    path = f"/proc/{pid}/map_files/{file.code[0]:x}-{file.code[1]:x}"
    try:
        return path, os.stat(path)
    except PermissionError:
        path = f"/proc/{pid}/root{file.path}"
        return path, os.stat(path)


def _read(path: str) -> TlsSymbol | None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return find(lambda offset, size: os.pread(descriptor, size, offset), VARIABLE)
    finally:
        os.close(descriptor)


def _is_executable(pid: int, file: _File) -> bool:
    try:
        return os.path.samestat(os.stat(f"/proc/{pid}/exe"), _status(pid, file)[1])
    except OSError:
        return False
