"""The processes that run V8: what the eBPF program needs to know about each, and names for their frames."""

import itertools
import struct
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
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
from collector.runtimes.v8.compiled import CodeHead, CompiledCode, read_compiled
from collector.runtimes.v8.functions import FoundFunction, read_functions
from collector.runtimes.v8.heap import Heap
from collector.runtimes.v8.layout import V8Layout, V8LayoutError
from collector.runtimes.v8.scripts import Scripts
from collector.runtimes.v8.symbols import Engine, find_engine

MAX_PROCESSES = 1024  # of the program's map
MAX_FILES = 1024
_LEAST_CODE_BYTES = 4 << 20  # of a file with V8: others are not looked at
_BUILTINS = 2  # V8_BUILTINS of the program
_VALUE_BYTES = 32 + 16 * _BUILTINS  # of struct v8_process
_READ_AT_ONCE = 64
_MASK = (1 << 64) - 1


_COMPILED = 1 << 31  # V8_COMPILED of the program
_MAX_UNITS = 1 << 20  # of tables that are kept: 16 MB
_CODES_AT_ONCE = 8  # takes some ten milliseconds
_MOST_CODES = 4  # of one function
_MOST_HEADS = 4096  # of one process
_NO_HEADS: frozenset[CodeHead] = frozenset()
_SPARKPLUG, _OPTIMIZED = 0, 1  # instead of addresses of functions, which collections may move


class _Known(NamedTuple):
    engine: Engine
    value: bytes  # in the program's map
    compiled: tuple[tuple[int, int], ...]  # addresses [start, end) of code that V8 may have compiled


class V8Processes:
    """A Runtime (collector/runtimes/processes.py). See Runtimes for the arguments."""

    name = "v8"
    kinds = frozenset([Kind.V8_FUNCTION, Kind.V8_CODE])

    def __init__(
        self, open_file: Callable[[str], int | None], maps: RuntimeMaps, patiently: Patiently = at_once
    ) -> None:
        self._maps = maps
        self.refusals = Refusals(self.name)
        wrong = V8LayoutError, OSError
        self._files = FilesOnce(open_file, patiently, _read_file, MAX_FILES, wrong, self.refusals.add_error)
        self._functions: ObjectCache[FoundFunction] = ObjectCache(_MAX_UNITS, lambda each: 64 + len(each.lines))
        self._codes: ObjectCache[tuple[CompiledCode, ...]] = ObjectCache(_MAX_UNITS, _units)  # by check
        self._names: ObjectCache[tuple[JitName, ...]] = ObjectCache()  # by function, with check and position
        self._heads: dict[int, set[CodeHead]] = {}  # by process
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
            compiled = tuple((each.start, each.end) for each in ranges if each.anonymous)
            self._known[pid] = _Known(engine, value, compiled)
            if before is None or before.value != value:  # mappings change often, and these seldom
                self._maps.set_entry("v8_processes", pid, value)
        return True

    def read(self, pid: int, objects: Iterable[tuple[int, int]]) -> None:
        wanted = list(objects)
        self._read(pid, [address for kind, address in wanted if kind == Kind.V8_FUNCTION])
        with self._lock:
            known = self._heads.get(pid, _NO_HEADS)
        self._read_code(pid, {address for kind, address in wanted if kind == Kind.V8_CODE}, known)

    def functions(self, wanted: list[ManagedFrame]) -> list[tuple[JitName, ...]]:
        """Reads the functions and the code that were not read before."""
        keys = [Key(frame.pid, frame.object, frame.check << 32 | frame.position) for frame in wanted]
        names = self._names.find(keys)
        missing = {key: frame for key, frame in zip(keys, wanted, strict=True) if key not in names}
        functions = [Key(frame.pid, frame.object, frame.check) for frame in missing.values()]
        known = self._functions.find_or_read(functions, self._read)
        frames = {
            key: (frame, known[own])
            for own, (key, frame) in zip(functions, missing.items(), strict=True)
            if own in known
        }
        found = {key: self._find(*each) for key, each in frames.items()}
        unread: dict[int, set[int]] = {}
        for key, (frame, _) in frames.items():
            if not found[key] and frame.position & _COMPILED:
                unread.setdefault(frame.pid, set()).add(frame.position)
        for pid, positions in unread.items():
            self._read_code(pid, positions)
        found = {key: found[key] or self._find(*each) or (JitName(*each[1].function),) for key, each in frames.items()}
        self._names.add(found)
        names |= found
        return [names.get(key, ()) for key in keys]

    def forget(self, pids: Iterable[int]) -> None:
        gone = list(pids)
        for cache in (self._functions, self._codes, self._names):
            cache.forget(gone)
        self._forget(gone)

    def _engine(self, key: str) -> Engine | None:
        try:
            return self._files.find(key)
        except (FileNotFoundError, TimeoutError):
            return None

    def _find(self, frame: ManagedFrame, function: FoundFunction) -> tuple[JitName, ...]:
        """The functions of a frame; none where its code was not read, or has no lines."""
        if not frame.position & _COMPILED:
            known = self._known.get(frame.pid)
            bytecodes = known.engine.layout.tables.bytecodes - 1 if known else 0
            line = function.lines.at(frame.position - bytecodes) if frame.position else 0
            return (JitName(*function.function._replace(line=line)),) if line else ()
        keys = Key(frame.pid, _OPTIMIZED, function.check), Key(frame.pid, _SPARKPLUG, function.table)
        for code in itertools.chain(*self._codes.find(keys).values()):
            if names := code.find(frame.position, function):
                return names
        return ()

    def _read_code(self, pid: int, addresses: Iterable[int], read_before: Collection[CodeHead] = ()) -> None:
        """Reads the code at these addresses. Only their lowest 31 bits count."""
        with self._lock:
            known = self._known.get(pid)
        starts = [
            (start, start + offset)
            for address in addresses
            for start, end in (known.compiled if known else ())
            if (offset := address - start & _COMPILED - 1) < end - start
        ]
        for at in range(0, len(starts), _CODES_AT_ONCE):
            if known is None:
                break
            part = starts[at : at + _CODES_AT_ONCE]
            try:
                codes = memory.patiently(pid, partial(self._read_code_part, pid, known.engine, part, read_before))
            except (OSError, TimeoutError):
                break
            for code in codes:
                key = Key(pid, _SPARKPLUG if code.own is None else _OPTIMIZED, code.check)
                others = [each for each in self._codes.find([key]).get(key, ()) if not each.overlaps(code)]
                self._codes.add({key: (code, *others[: _MOST_CODES - 1])})
            with self._lock:
                heads = self._heads.setdefault(pid, set())
                heads.update(code.head for code in codes)
                if len(heads) > _MOST_HEADS or pid not in self._known:
                    del self._heads[pid]

    def _read_code_part(
        self, pid: int, engine: Engine, addresses: Sequence[tuple[int, int]], known: Collection[CodeHead]
    ) -> list[CompiledCode]:
        heap = Heap(partial(pages.read, pid), engine.layout.text.strings_end)
        return read_compiled(pid, heap, engine.layout, engine.bytecode_sizes, self._scripts, addresses, known)

    def _read(self, pid: int, addresses: Iterable[int]) -> dict[Key, FoundFunction]:
        with self._lock:
            known = self._known.get(pid)
        if known is None:
            return {}
        wanted, functions = sorted(set(addresses)), dict[Key, FoundFunction]()
        for at in range(0, len(wanted), _READ_AT_ONCE):
            part = wanted[at : at + _READ_AT_ONCE]
            try:
                found = memory.patiently(pid, partial(self._read_part, pid, known.engine.layout, part))
            except (OSError, TimeoutError):  # the process is gone, or does not let us look: the frames stay unnamed
                break
            functions |= {
                Key(pid, at, each.check): each._replace(script=None)
                for at, each in zip(part, found, strict=True)
                if each
            }
        self._functions.add(functions)
        return functions

    def _read_part(self, pid: int, layout: V8Layout, addresses: Sequence[int]) -> list[FoundFunction | None]:
        heap = Heap(partial(pages.read, pid), layout.text.strings_end)
        return read_functions(pid, heap, layout, self._scripts, addresses)

    def _forget(self, pids: Iterable[int]) -> None:
        with self._lock:
            for pid in pids:
                self._heads.pop(pid, None)
                if self._known.pop(pid, None) is not None:
                    self._maps.delete_entry("v8_processes", pid)


def _units(codes: tuple[CompiledCode, ...]) -> int:
    return 64 + sum(len(code.at) + 16 * len(code.functions) for code in codes)


def _read_file(descriptor: int) -> Engine | None:
    return find_engine(file_reader(descriptor))


def _builtins(mapped: MappedRange, engine: Engine) -> tuple[int, int]:
    """Where a range has the code of the builtins: start and bytes; no bytes if it has none."""
    start, end = (address - mapped.bias & _MASK for address in engine.builtins)
    start, end = max(start, mapped.start), min(end, mapped.end)
    return start, max(end - start, 0)
