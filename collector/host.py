"""Follows the processes of this host: what they map, how to walk their stacks, and their managed runtimes."""

import logging
import threading
from collections.abc import Sequence

from collector import metrics
from collector.bpf.program import ProfileProgram
from collector.bpf.requests import KernelRequest, RequestKind, read_requests
from collector.generated_code import GeneratedCode
from collector.guest.priority import run_at_once
from collector.guest.stalls import Working
from collector.processes.listener import ProcessListener
from collector.processes.mapped_files import FileCache
from collector.processes.mappings import MappedRange, ProcessMappings
from collector.processes.process import Process
from collector.processes.watch import Watcher
from collector.runtimes.code_queue import CodeQueue
from collector.runtimes.processes import Runtimes
from collector.unwind.tables.cache import TableCache
from collector.unwind.unwinding import Unwinding

log = logging.getLogger(__name__)


class Host:
    """Answers the eBPF program's requests and handles the kernel's events, on a thread of its own from `start` to
    `close`. It tells `listeners` about every process."""

    def __init__(
        self,
        program: ProfileProgram,
        files: FileCache,
        tables: TableCache,
        listeners: Sequence[ProcessListener] = (),
        generated: GeneratedCode | None = None,
    ) -> None:
        """`generated`: made while the privileges for it are there."""
        self._program, self._files, self._listeners = program, files, listeners
        self._code = CodeQueue()
        self.runtimes = Runtimes(files.open, program, files.patiently)
        self._unwinding = Unwinding(program, tables, files.open, files.patiently)
        self.mappings = ProcessMappings(files, [StackWalking(self._unwinding, self.runtimes), *listeners])
        self.generated = generated or GeneratedCode()
        self._watcher = Watcher(self.mappings, generated=self.generated)
        self._watcher.add(program.requests_fd, self._answer)
        self._code_reader = threading.Thread(target=self._read_code, name="read-code", daemon=True)

    def start(self) -> None:
        """Reads the running processes, for half a second at most, and follows all processes from then on."""
        self._unwinding.start()
        self._watcher.start()
        self._code_reader.start()
        metrics.EVENTS_LOST.read(lambda: self._watcher.lost)
        self.mappings.scan()

    def ready(self, pid: int) -> bool:
        """Whether the process is known, and every table that a walk of its stacks requested is loaded."""
        return bool(self.mappings.ranges(pid)) and self._unwinding.ready(pid)

    def events_s(self) -> float:
        """CPU time that the kernel took for events of processes so far, in these."""
        return self._watcher.events_s

    def shed(self, level: int) -> None:
        """Answers the eBPF program and reads events ten times a second from level 2 on, instead of at once."""
        self._watcher.resting = level > 1

    def close(self) -> None:
        self._watcher.close()
        self._code.end()
        self._unwinding.close()
        self.mappings.close()
        self._files.close()

    def _answer(self) -> None:
        """Answers all requests. Those for objects of code are left to another thread, which waits for the memory of
        processes."""
        for request in read_requests(self._program.requests):
            if request.kind == RequestKind.OBJECT:
                self._code.put(request.pid, request.value)
            else:
                self._answer_one(request)

    def _read_code(self) -> None:
        run_at_once()
        while (wanted := self._code.pop()) is not None:
            try:
                with Working("read-code"):
                    self.runtimes.read(*wanted)
            except Exception:
                log.exception("the code of process %d could not be read", wanted[0])

    def _answer_one(self, request: KernelRequest) -> None:
        match request.kind:
            case RequestKind.PROCESS:
                if self._unwinding.lacks(request.pid, request.time_monotonic_ns):
                    self.mappings.notify(request.pid)
            case RequestKind.MAPPING:
                self.mappings.notify(request.pid, request.value)
            case RequestKind.CHUNK:
                self._unwinding.load_chunk(request.value)
            case RequestKind.TABLE:
                self._unwinding.load_table(request.pid, request.value)
            case RequestKind.THREAD:
                for listener in self._listeners:
                    listener.sampled(request.pid)


class StackWalking(ProcessListener):
    """Gives the eBPF program what it needs to walk the stacks of each process."""

    def __init__(self, unwinding: Unwinding, runtimes: Runtimes) -> None:
        self._unwinding, self._runtimes = unwinding, runtimes

    def mapped(self, process: Process, ranges: list[MappedRange]) -> None:
        self._unwinding.changed(process, ranges, self._runtimes.changed(process.pid, ranges))

    def ended(self, pid: int) -> None:
        self._unwinding.ended(pid)
