"""The processes that run CPython: what the eBPF program needs to know about each, and names for their frames."""

import struct
import threading
from collections.abc import Callable, Iterable
from functools import partial

from collector.processes.patience import Patiently, at_once
from collector.processes.perfmap import JitName
from collector.processes.process import user_of
from collector.runtimes.cache import Key, ObjectCache
from collector.runtimes.frames import Kind, ManagedFrame
from collector.runtimes.maps import RuntimeMaps
from collector.runtimes.python import code
from collector.runtimes.python.code import Code
from collector.runtimes.python.layout import PythonLayout
from collector.runtimes.python.runtime import FileRange, PythonRuntime, PythonRuntimes

MAX_PROCESSES = 8192


class PythonProcesses:
    """A Runtime (collector/runtimes/processes.py)."""

    name = "python"
    kinds = frozenset([Kind.PYTHON_CODE])

    def __init__(
        self, open_file: Callable[[str], int | None], maps: RuntimeMaps, patiently: Patiently = at_once
    ) -> None:
        """`open_file`, `patiently`: see PythonRuntimes."""
        self.runtimes = PythonRuntimes(open_file, patiently)
        self._maps, self._layouts_set = maps, 0
        self._code: ObjectCache[Code] = ObjectCache()
        self._lock = threading.Lock()
        self._layouts: dict[int, PythonLayout] = {}  # of processes

    def changed(self, pid: int, ranges: Iterable[FileRange]) -> bool:
        """Raises OSError if the program's map of layouts cannot be written."""
        runtime = self.runtimes.find(ranges, partial(user_of, pid))
        while self._layouts_set < len(self.runtimes.layouts):
            layout = self.runtimes.layouts[self._layouts_set]
            self._maps.set_entry("python_layouts", self._layouts_set, layout.walk.pack())
            self._layouts_set += 1
        if runtime is None:
            self._forget([pid])
            return False
        with self._lock:
            self._layouts.pop(pid, None)
            while len(self._layouts) >= MAX_PROCESSES:
                oldest = next(iter(self._layouts))
                del self._layouts[oldest]
                self._maps.delete_entry("python_processes", oldest)
            self._layouts[pid] = self.runtimes.layouts[runtime.layout]
            self._maps.set_entry("python_processes", pid, _entry(runtime))
        return True

    def read(self, pid: int, objects: Iterable[tuple[int, int]]) -> None:
        self._read(pid, [address for _, address in objects])

    def functions(self, wanted: list[ManagedFrame]) -> list[tuple[JitName, ...]]:
        """Reads the code objects that were not read before."""
        keys = [Key(frame.pid, frame.object, frame.check) for frame in wanted]
        known = self._code.find_or_read(keys, self._read)
        found = [(known.get(key), frame.position) for key, frame in zip(keys, wanted, strict=True)]
        return [(JitName(each.function, each.file, each.lines.at(at)),) if each else () for each, at in found]

    def forget(self, pids: Iterable[int]) -> None:
        gone = list(pids)
        self._code.forget(gone)
        self._forget(gone)

    def _read(self, pid: int, addresses: Iterable[int]) -> dict[Key, Code]:
        layout = self._layout(pid)
        codes = {} if layout is None else code.read(pid, layout, addresses)
        self._code.add(codes)
        return codes

    def _forget(self, pids: Iterable[int]) -> None:
        with self._lock:
            for pid in pids:
                if self._layouts.pop(pid, None) is not None:
                    self._maps.delete_entry("python_processes", pid)

    def _layout(self, pid: int) -> PythonLayout | None:
        """Returns the layout of a process; for one that was just forked, its parent's."""
        with self._lock:
            layout = self._layouts.get(pid)
            return self._layouts.get(_parent(pid)) if layout is None and self._layouts else layout


def _entry(runtime: PythonRuntime) -> bytes:
    """Packs `struct python_process`."""
    loop = [*runtime.loop, (0, 0), (0, 0)][:2]
    return struct.pack("=QIIQQQQ", runtime.address, runtime.layout, 0, *loop[0], *loop[1])


def _parent(pid: int) -> int:
    """Returns the parent of a process; 0 if there is none, or no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
