"""The processes that run V8: what the eBPF program needs to know about each, and names for their frames."""

import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from collector.elf.reader import file_reader
from collector.processes import memory, pages
from collector.processes.mapped_ranges import MappedRange
from collector.processes.patience import Patiently, at_once
from collector.processes.perfmap import JitName
from collector.runtimes.cache import Key, ObjectCache
from collector.runtimes.files import FilesOnce
from collector.runtimes.frames import Kind, ManagedFrame
from collector.runtimes.maps import RuntimeMaps
from collector.runtimes.refusals import Refusals
from collector.runtimes.v8.functions import JsFunction, read_functions
from collector.runtimes.v8.heap import Heap
from collector.runtimes.v8.layout import V8Layout, V8LayoutError
from collector.runtimes.v8.scripts import Scripts
from collector.runtimes.v8.symbols import Engine, find_engine

MAX_PROCESSES = 1024  # of the program's map
MAX_FILES = 1024
_LEAST_CODE_BYTES = 4 << 20  # of a file with V8: others are not looked at
_BUILTINS = 2  # V8_BUILTINS of the program
_VALUE_BYTES = 24 + 16 * _BUILTINS  # of struct v8_process
_READ_AT_ONCE = 64
_MASK = (1 << 64) - 1


class _Known(NamedTuple):
    layout: V8Layout
    value: bytes  # in the program's map


class V8Processes:
    """A Runtime (collector/runtimes/processes.py). See Runtimes for the arguments."""

    name = "v8"
    kinds = frozenset([Kind.V8_FUNCTION])

    def __init__(
        self, open_file: Callable[[str], int | None], maps: RuntimeMaps, patiently: Patiently = at_once
    ) -> None:
        self._maps = maps
        self.refusals = Refusals(self.name)
        wrong = V8LayoutError, OSError
        self._files = FilesOnce(open_file, patiently, _read_file, MAX_FILES, wrong, self.refusals.add_error)
        self._functions: ObjectCache[JsFunction] = ObjectCache()
        self._scripts = Scripts()
        self._lock = threading.Lock()
        self._known: dict[int, _Known] = {}  # by process

    def changed(self, pid: int, ranges: Sequence[MappedRange]) -> bool:
        """Raises OSError if the program's map of processes cannot be written."""
        large = {each.file_key for each in ranges if each.entry and each.end - each.start >= _LEAST_CODE_BYTES}
        known = {key: engine for key in large if key and (engine := self._engine(key)) is not None}
        if not known:
            self._forget([pid])
            return False
        key, engine = known.popitem()
        builtins = [_builtins(each, engine) for each in ranges if each.file_key == key]
        shown = [part for part in builtins if part[1]][:_BUILTINS]
        value = engine.layout.walk.pack() + b"".join(struct.pack("=QQ", *part) for part in shown)
        value = value.ljust(_VALUE_BYTES, b"\0")
        with self._lock:
            before = self._known.pop(pid, None)
            while len(self._known) >= MAX_PROCESSES:
                oldest = next(iter(self._known))
                del self._known[oldest]
                self._maps.delete_entry("v8_processes", oldest)
            self._known[pid] = _Known(engine.layout, value)
            if before is None or before.value != value:  # mappings change often, and these seldom
                self._maps.set_entry("v8_processes", pid, value)
        return True

    def read(self, pid: int, objects: Iterable[tuple[int, int]]) -> None:
        self._read(pid, [address for _, address in objects])

    def functions(self, wanted: list[ManagedFrame]) -> list[tuple[JitName, ...]]:
        """Reads the functions that were not read before."""
        keys = [Key(frame.pid, frame.object, frame.check) for frame in wanted]
        known = self._functions.find_or_read(keys, self._read)
        return [(JitName(*found),) if (found := known.get(key)) else () for key in keys]

    def forget(self, pids: Iterable[int]) -> None:
        gone = list(pids)
        self._functions.forget(gone)
        self._forget(gone)

    def _engine(self, key: str) -> Engine | None:
        try:
            return self._files.find(key)
        except (FileNotFoundError, TimeoutError):
            return None

    def _read(self, pid: int, addresses: Iterable[int]) -> dict[Key, JsFunction]:
        with self._lock:
            known = self._known.get(pid)
        if known is None:
            return {}
        wanted, functions = sorted(set(addresses)), dict[Key, JsFunction]()
        for at in range(0, len(wanted), _READ_AT_ONCE):
            part = wanted[at : at + _READ_AT_ONCE]
            try:
                found = memory.patiently(pid, partial(self._read_part, pid, known.layout, part))
            except (OSError, TimeoutError):  # the process is gone, or does not let us look: the frames stay unnamed
                break
            functions |= {Key(pid, at, each[0]): each[1] for at, each in zip(part, found, strict=True) if each}
        self._functions.add(functions)
        return functions

    def _read_part(self, pid: int, layout: V8Layout, addresses: Sequence[int]) -> list[tuple[int, JsFunction] | None]:
        heap = Heap(partial(pages.read, pid), layout.text.strings_end)
        return read_functions(pid, heap, layout, self._scripts, addresses)

    def _forget(self, pids: Iterable[int]) -> None:
        with self._lock:
            for pid in pids:
                if self._known.pop(pid, None) is not None:
                    self._maps.delete_entry("v8_processes", pid)


def _read_file(descriptor: int) -> Engine | None:
    return find_engine(file_reader(descriptor))


def _builtins(mapped: MappedRange, engine: Engine) -> tuple[int, int]:
    """Where a range has the code of the builtins: start and bytes; no bytes if it has none."""
    start, end = (address - mapped.bias & _MASK for address in engine.builtins)
    start, end = max(start, mapped.start), min(end, mapped.end)
    return start, max(end - start, 0)
