"""The managed runtimes of all processes: what the eBPF program needs to know about each, and names for their frames."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from collector.bpf.samples import ENDS, TOO_DEEP
from collector.processes.mapped_files import TRUNCATED, MappedFile
from collector.processes.mapped_ranges import MappedRange
from collector.processes.patience import Patiently, at_once
from collector.processes.perfmap import JitName
from collector.runtimes import frames
from collector.runtimes.frames import Kind, ManagedFrame
from collector.runtimes.hotspot.processes import HotspotProcesses
from collector.runtimes.maps import RuntimeMaps
from collector.runtimes.python.processes import PythonProcesses
from collector.runtimes.unwalkable import CompilersWithoutFramePointers
from collector.runtimes.v8.processes import V8Processes
from icestream import ids
from icestream.columns import index_ranges
from icestream.v1.common_pb2 import Mapping


class Runtime(Protocol):
    """What the collector knows about one runtime. The thread that watches processes calls `changed`, one that may wait
    `read`, the one that builds batches `functions` and `forget`."""

    name: str
    kinds: frozenset[Kind]

    def changed(self, pid: int, ranges: Sequence[MappedRange]) -> bool:
        """Notes the mappings of a process, and tells the eBPF program about the process. Returns whether it has frames
        of this runtime that can be walked."""

    def read(self, pid: int, objects: Iterable[tuple[int, int]]) -> None:
        """Reads objects (kind, address) that the program has seen, before the process ends."""

    def functions(self, wanted: list[ManagedFrame]) -> list[tuple[JitName, ...]]:
        """Returns the functions of each frame: those that were inlined, innermost first, and the frame's own; none
        where the object was gone before it was read."""

    def forget(self, pids: Iterable[int]) -> None:
        """Forgets processes that have ended and whose last samples have names."""


class Found(NamedTuple):
    """What a walk needs to know about the runtimes of a process."""

    kinds: int = 0  # bits, 1 << Kind of those that can be walked
    unwalkable: int | None = None  # number of the compiler that keeps no frame pointers; None: generated code does


NONE_FOUND = Found()


class ManagedFunctions(NamedTuple):
    """The functions of m managed frames."""

    files: list[MappedFile]
    names: list[JitName]
    counts: np.ndarray  # int64 (m,), of each frame, at least one
    file: np.ndarray  # int64 (sum of counts,), rows of `files`
    name: np.ndarray  # int64 (sum of counts,), rows of `names`


class Runtimes:
    """All of them. `open_file` returns a new descriptor of the file with a key (MappedRange.file_key), or None: it is
    FileCache.open, and `patiently` FileCache.patiently."""

    def __init__(
        self, open_file: Callable[[str], int | None], program: RuntimeMaps, patiently: Patiently = at_once
    ) -> None:
        self._known: list[Runtime] = [
            PythonProcesses(open_file, program, patiently),
            V8Processes(open_file, program, patiently),
            HotspotProcesses(open_file, program, patiently),
        ]
        self._compilers = CompilersWithoutFramePointers(open_file, patiently)
        of_runtimes = [MappedFile(Mapping.NAMED, "", f"[{each.name}]") for each in self._known]
        self._files = [*of_runtimes, TRUNCATED]
        self._unread = [(JitName(each.file, each.file),) for each in of_runtimes]
        self._unread.append((JitName(f"[truncated: {ENDS[TOO_DEEP]}]", TRUNCATED.file),))
        self._of_kind: dict[int, int] = {kind: row for row, each in enumerate(self._known) for kind in each.kinds}

    def changed(self, pid: int, ranges: Sequence[MappedRange]) -> Found:
        """Notes the mappings of a process."""
        kinds = sum(1 << kind for each in self._known if each.changed(pid, ranges) for kind in each.kinds)
        return Found(kinds, self._compilers.find(ranges))

    def read(self, pid: int, requests: Iterable[int]) -> None:
        """Reads the objects that the eBPF program asked for."""
        of: dict[int, list[tuple[int, int]]] = {}
        for kind, address in map(frames.kind_and_object, requests):
            if kind in self._of_kind:
                of.setdefault(self._of_kind[kind], []).append((kind, address))
        for row, objects in of.items():
            self._known[row].read(pid, objects)

    def functions(self, pid: np.ndarray, words: np.ndarray, info: np.ndarray) -> ManagedFunctions:
        """Returns the functions of m managed frames (uint32, uint64, uint64, as the program sends them)."""
        words = frames.without_place(words)
        _, first, row = np.unique(ids.combine(ids.combine(pid, words), info), return_index=True, return_inverse=True)
        distinct = frames.parse(pid[first], words[first], info[first])
        file = np.array([self._of_kind.get(frame.kind, len(self._known)) for frame in distinct], np.int64)
        functions: list[tuple[JitName, ...]] = [()] * len(distinct)
        for known, runtime in enumerate(self._known):
            at = np.flatnonzero(file == known).tolist()
            for i, found in zip(at, runtime.functions([distinct[i] for i in at]) if at else (), strict=True):
                functions[i] = found
        functions = [found or self._unread[of] for found, of in zip(functions, file.tolist(), strict=True)]
        count = np.array([len(found) for found in functions], np.int64)
        names = [name for found in functions for name in found]
        return ManagedFunctions(
            self._files, names, count[row], np.repeat(file[row], count[row]), index_ranges.rows_of(row, count)
        )

    def forget(self, pids: Iterable[int]) -> None:
        """Forgets processes that have ended and whose last samples have names."""
        gone = list(pids)
        for each in self._known:
            each.forget(gone)
