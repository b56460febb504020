"""What is known of the processes of this host, kept current: what they map, how to walk their stacks, their Python."""

from collections.abc import Callable

from collector import metrics
from collector.bpf import requests
from collector.bpf.program import ProfileProgram
from collector.bpf.requests import CHUNK, MAPPING, PROCESS, TABLE, THREAD
from collector.processes.mapped_files import FileCache
from collector.processes.mappings import Mappings, Row
from collector.processes.process import Process
from collector.processes.process_events import Event
from collector.processes.watch import Watcher
from collector.python.processes import PythonProcesses
from collector.unwind.cache import TableCache
from collector.unwind.unwinding import Unwinding


class Host:
    """Answers the program's questions and the kernel's events on a thread of its own, from `start` to `close`.

    `seen(pid)` is called there when a thread of a process was sampled for the first time: a short-lived one can be
    looked at while it lives. `told(pid, event)` is called for each event.
    """

    def __init__(
        self,
        program: ProfileProgram,
        files: FileCache,
        tables: TableCache,
        seen: Callable[[int], None] = lambda pid: None,
        told: Callable[[int, Event], None] = lambda pid, event: None,
    ) -> None:
        self.mappings = Mappings(files, self._changed, self._ended, told)
        self.python = PythonProcesses(files.open, program.set_python_layout)
        self._program, self._files, self._seen = program, files, seen
        self._unwinding = Unwinding(program, tables, files.open) if program.unwinds else None
        self._watcher = Watcher(self.mappings)
        self._watcher.add(program.asks_fd, self._answer)

    def start(self) -> None:
        """Learns what runs now, for half a second at most, and follows it."""
        if self._unwinding:
            self._unwinding.start()
        self._watcher.start()
        metrics.EVENTS_LOST.set_function(lambda: self._watcher.lost)
        self.mappings.scan()

    def ready(self, pid: int) -> bool:
        """Whether the process is known, and no table that a walk of its stacks asked for is still to come."""
        return bool(self.mappings.rows(pid)) and (self._unwinding is None or self._unwinding.ready(pid))

    def close(self) -> None:
        self._watcher.close()
        if self._unwinding:
            self._unwinding.close()
        self._files.close()

    def _changed(self, process: Process, rows: list[Row]) -> None:
        if self._unwinding:
            self._unwinding.changed(process, rows, self.python.changed(process.pid, rows))

    def _ended(self, pid: int) -> None:
        if self._unwinding:
            self._unwinding.ended(pid)

    def _answer(self) -> None:
        answers: dict[int, requests.Answer] = {
            PROCESS: lambda pid, _: self.mappings.asked(pid),
            MAPPING: self.mappings.asked,
            THREAD: lambda pid, _: self._seen(pid),
        }
        if unwinding := self._unwinding:
            answers[CHUNK] = lambda _, chunk: unwinding.load_chunk(chunk)
            answers[TABLE] = unwinding.load_table
        requests.answer(self._program.asks, answers, self.python.read)
