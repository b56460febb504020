"""Finds the processes that run CPython, by the files that they map; each file is read once."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from collector.elf.reader import file_reader
from collector.processes.patience import Patiently, at_once
from collector.runtimes.files import FilesOnce
from collector.runtimes.python.layout import LayoutError, PythonLayout
from collector.runtimes.python.symbols import Interpreter, find_interpreter
from collector.runtimes.refusals import Refusals

MAX_LAYOUTS = 64  # PYTHON_LAYOUTS of the program
MAX_LAYOUTS_OF_USER = 16
"""A user other than root may have so many: files with made-up offsets must not take the rows that others need."""

MAX_FILES = 8192
_MASK = (1 << 64) - 1


class FileRange(Protocol):
    """A mapped range of a process, see collector/processes/mapped_ranges.py."""

    @property
    def bias(self) -> int: ...
    @property
    def file_key(self) -> str: ...
    @property
    def entry(self) -> object: ...


class PythonRuntime(NamedTuple):
    address: int  # Interpreter.runtime in the process
    layout: int  # row of `layouts`
    loop: tuple[tuple[int, int], ...] = ()  # Interpreter.loop in the process


class PythonRuntimes:
    """For one thread. `open_file`, `patiently`: see FilesOnce."""

    def __init__(self, open_file: Callable[[str], int | None], patiently: Patiently = at_once) -> None:
        self.refusals = Refusals("python")
        wrong = LayoutError, OSError
        self._files = FilesOnce(open_file, patiently, _read, MAX_FILES, wrong, self.refusals.add_error)
        self._rows: dict[PythonLayout, int] = {}
        self._rows_of_users: Counter[int | None] = Counter()
        self.layouts: list[PythonLayout] = []

    def find(self, ranges: Iterable[FileRange], user: Callable[[], int | None] = lambda: None) -> PythonRuntime | None:
        """Returns the runtime of a process with these mappings; None if it has none that can be read. `user` returns
        the user of the process, None if it has ended."""
        biases = {mapped.file_key: mapped.bias for mapped in ranges if mapped.entry}  # the vDSO cannot be opened
        for file_key, bias in biases.items():
            interpreter = self._interpreter(file_key) if file_key else None
            if interpreter is not None and (row := self._row(interpreter.layout, user)) is not None:
                loop = tuple((start - bias & _MASK, end - bias & _MASK) for start, end in interpreter.loop)
                return PythonRuntime(interpreter.runtime - bias & _MASK, row, loop)
        return None

    def _interpreter(self, file_key: str) -> Interpreter | None:
        try:
            return self._files.find(file_key)
        except (FileNotFoundError, TimeoutError):
            return None

    def _row(self, layout: PythonLayout, user: Callable[[], int | None]) -> int | None:
        if layout not in self._rows:
            if len(self.layouts) >= MAX_LAYOUTS:
                self.refusals.add(f"more than {MAX_LAYOUTS} builds of CPython on this host")
                return None
            if (owner := user()) != 0:  # processes that have ended count as those of one user
                if self._rows_of_users[owner] >= MAX_LAYOUTS_OF_USER:
                    self.refusals.add(f"more than {MAX_LAYOUTS_OF_USER} builds of CPython of one user")
                    return None
                self._rows_of_users[owner] += 1
            self._rows[layout] = len(self.layouts)
            self.layouts.append(layout)
        return self._rows[layout]


def _read(descriptor: int) -> Interpreter | None:
    return find_interpreter(file_reader(descriptor))
