"""The processes that run a HotSpot JVM: what the eBPF program needs to know about each, and names for their frames."""

import struct
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import NamedTuple

from collector.processes import memory, pages
from collector.processes.jit_name import JitName
from collector.processes.mapped_ranges import MappedRange
from collector.processes.patience import Patiently, at_once
from collector.runtimes.files import FilesOnce
from collector.runtimes.frames import Kind, ManagedFrame
from collector.runtimes.hotspot import vm_structs
from collector.runtimes.hotspot.code import HotspotCode, Jvm
from collector.runtimes.hotspot.heaps import NO_HEAPS, CodeHeaps, JvmNotReady, find_heaps
from collector.runtimes.hotspot.layout import HotspotLayout, layout
from collector.runtimes.hotspot.vm_structs import StructuresError
from collector.runtimes.maps import RuntimeMaps
from collector.runtimes.refusals import Refusals

MAX_PROCESSES = 1024  # room in the map of the program
LIBRARY = "libjvm.so"
_MAX_FILES = 1024
_TRIES, _AGAIN_S = 5, 0.5
_MASK = (1 << 64) - 1
_VERSION = "Abstract_VM_Version._vm_major_version"


class _Library(NamedTuple):
    """Where a process has its libjvm.so."""

    file_key: str
    bias: int


@dataclass
class _Process:
    library: _Library
    jvm: Jvm | None = None  # None: not known (yet)
    refused: bool = False
    tries: int = 0
    again_s: float = 0.0  # monotonic: when to look again at the earliest


class HotspotProcesses:
    """A Runtime (collector/runtimes/processes.py)."""

    name = "hotspot"
    kinds = frozenset([Kind.HOTSPOT_CODE, Kind.HOTSPOT_METHOD])

    def __init__(
        self, open_file: Callable[[str], int | None], maps: RuntimeMaps, patiently: Patiently = at_once
    ) -> None:
        self._maps = maps
        self._files = FilesOnce(open_file, patiently, vm_structs.find_tables, _MAX_FILES)
        self._code = HotspotCode()
        self._lock = threading.Lock()
        self._processes: dict[int, _Process] = {}
        self.refusals = Refusals(self.name)

    def changed(self, pid: int, ranges: Sequence[MappedRange]) -> bool:
        """The program asks for what it needs once it meets code of the JVM."""
        library = next(
            (
                _Library(each.file_key, each.bias)
                for each in ranges
                if each.entry and each.file_key and each.entry.path.removesuffix(" (deleted)").endswith(LIBRARY)
            ),
            None,
        )
        if library is None:
            self._forget([pid])
            return False
        with self._lock:
            known = self._processes.get(pid)
            if known is None or known.library != library:
                self._let_go(pid)
                while len(self._processes) >= MAX_PROCESSES:
                    self._let_go(next(iter(self._processes)))
                self._processes[pid] = _Process(library)
        return True

    def read(self, pid: int, objects: Iterable[tuple[int, int]]) -> None:
        """Looks at the JVM first where that was not done yet, which takes some ten milliseconds."""
        known = self._processes.get(pid)
        if known is not None and known.jvm is None:
            self._look(pid, known)
        jvm = self._jvm(pid)
        if jvm is not None:
            wanted = [each for each in objects if each[1]]
            blobs, methods = (
                [address for of, address in wanted if of == kind] for kind in (Kind.HOTSPOT_CODE, Kind.HOTSPOT_METHOD)
            )
            self._code.read(pid, jvm, blobs, methods)

    def functions(self, wanted: list[ManagedFrame]) -> list[tuple[JitName, ...]]:
        return self._code.functions(wanted, self._jvm)

    def forget(self, pids: Iterable[int]) -> None:
        gone = list(pids)
        self._code.forget(gone)
        self._forget(gone)

    def _jvm(self, pid: int) -> Jvm | None:
        with self._lock:
            known = self._processes.get(pid)
            return known.jvm if known else None

    def _look(self, pid: int, known: _Process) -> None:
        """Looks for a JVM's code, which is not there yet while it starts."""
        if known.refused or time.monotonic() < known.again_s:
            return
        known.again_s = time.monotonic() + _AGAIN_S
        try:
            exported = self._files.find(known.library.file_key)
            if exported is None:
                raise StructuresError("libjvm.so exports no tables of its structures")
            jvm, heaps = _find(pid, known.library, exported)
        except (FileNotFoundError, TimeoutError, JvmNotReady):
            return
        except (StructuresError, OSError) as error:  # the linker may not have filled the tables yet
            known.tries += 1
            if known.tries == _TRIES:
                known.refused = True
                self.refusals.add(str(error))
                self._set(pid, known, NO_HEAPS.pack() + bytes(_LAYOUT_BYTES))
            return
        known.jvm = jvm
        self._set(pid, known, heaps.pack() + _pack(jvm.layout))

    def _set(self, pid: int, known: _Process, value: bytes) -> None:
        with self._lock:
            if self._processes.get(pid) is known:  # it may have ended, or runs another program
                self._maps.set_entry("hotspot_processes", pid, value)

    def _forget(self, pids: Iterable[int]) -> None:
        with self._lock:
            for pid in pids:
                self._let_go(pid)

    def _let_go(self, pid: int) -> None:
        known = self._processes.pop(pid, None)
        if known is not None and (known.jvm is not None or known.refused):
            self._maps.delete_entry("hotspot_processes", pid)


def _find(pid: int, library: _Library, exported: dict[str, int]) -> tuple[Jvm, CodeHeaps]:
    """Raises StructuresError, JvmNotReady, OSError; TimeoutError on a busy host."""

    def read(areas: Sequence[tuple[int, int]]) -> list[bytes | None]:
        return memory.patiently(pid, partial(pages.read, pid, areas)) if areas else []

    structs = vm_structs.read_tables(read, {name: at - library.bias & _MASK for name, at in exported.items()})
    statics = [structs.statics.get(name, 0) for name in (_VERSION, "StubRoutines._call_stub_return_address")]
    version, call_stub_return = read([(statics[0], 4), (statics[1], 8)])
    if version is None:
        raise StructuresError("it does not say which version it is")
    found = layout(int.from_bytes(version, "little"), structs)
    return Jvm(partial(_read_memory, pid), found, int.from_bytes(call_stub_return or b"", "little")), find_heaps(
        read, found.heaps
    )


def _read_memory(pid: int, areas: Sequence[tuple[int, int]]) -> list[bytes | None]:
    """Reads nothing where the process does not let us, and nothing of size 0."""
    try:
        return memory.patiently(pid, partial(pages.read, pid, areas)) if areas else []
    except (OSError, TimeoutError):
        return [None] * len(areas)


_LAYOUT_BYTES = 88


def _pack(known: HotspotLayout) -> bytes:
    """The offsets in struct hotspot_process of bpf/hotspot.h."""
    return struct.pack("=21II", *astuple(known.walk), 0)
