"""Finds the processes that run CPython, by the files that they map; each file is read once."""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from collector.elf.reader import file_reader
from collector.processes.patience import Patiently, at_once
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
    """For one thread. `open_file` returns a new descriptor of the file with a key (MappedRange.file_key), or None: it
    is FileCache.open, and `patiently` FileCache.patiently."""

    def __init__(self, open_file: Callable[[str], int | None], patiently: Patiently = at_once) -> None:
        self._open_file, self._patiently = open_file, patiently
        self._files: dict[str, Interpreter | None] = {}
        self._rows: dict[PythonLayout, int] = {}
        self._rows_of_users: Counter[int | None] = Counter()
        self.layouts: list[PythonLayout] = []
        self.refusals = Refusals("python")

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
        if file_key not in self._files:
            interpreter: Interpreter | None = None
            try:
                interpreter = self._patiently(file_key, lambda: self._read(file_key))
            except (FileNotFoundError, TimeoutError):  # gone, or its file system does not answer: it is tried again
                return None
            except LayoutError as error:
                self.refusals.add(str(error))
            except OSError as error:
                self.refusals.add(f"the file cannot be read: {error.strerror}")
            while len(self._files) >= MAX_FILES:
                del self._files[next(iter(self._files))]
            self._files[file_key] = interpreter
        return self._files[file_key]

    def _read(self, file_key: str) -> Interpreter | None:
        descriptor = self._open_file(file_key)
        if descriptor is None:  # another process may have it
            raise FileNotFoundError(file_key)
        try:
            return find_interpreter(file_reader(descriptor))
        finally:
            os.close(descriptor)

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
