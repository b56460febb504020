"""The processes that run CPython: what the eBPF program needs to know about each, and names for their frames."""

import threading
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from collector.processes.mapped_files import MappedFile
from collector.processes.patience import Patiently, at_once
from collector.processes.perfmap import JitName
from collector.processes.process import user_of
from collector.python.code import Key, PythonCode
from collector.python.layout import PythonLayout
from collector.python.runtime import FileRange, PythonRuntimes, Runtime
from icestream import ids
from icestream.v1.common_pb2 import Mapping

MAX_PROCESSES = 8192
PYTHON = MappedFile(Mapping.NAMED, "", "[python]")
UNNAMED = JitName("[python]", PYTHON.file)
"""The name of a frame whose code object was gone before it was read."""

_OFFSET, _CHECK = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFF)


class PythonProcesses:
    """The thread that watches processes calls `changed` and `read`; the one that builds batches calls `names` and
    `forget`."""

    def __init__(
        self,
        open_file: Callable[[str], int | None],
        set_layout: Callable[[int, bytes], None] = lambda row, data: None,
        patiently: Patiently = at_once,
    ) -> None:
        """`open_file`, `patiently`: see PythonRuntimes. `set_layout` writes a layout to the program's table; `changed`
        raises what it raises."""
        self.runtimes = PythonRuntimes(open_file, patiently)
        self._set_layout, self._layouts_set = set_layout, 0
        self._code = PythonCode()
        self._lock = threading.Lock()
        self._layouts: dict[int, PythonLayout] = {}  # of processes

    def changed(self, pid: int, ranges: Iterable[FileRange]) -> Runtime | None:
        """Notes the mappings of a process; returns its interpreter, or None if it has none whose frames can be read."""
        runtime = self.runtimes.find(ranges, partial(user_of, pid))
        while self._layouts_set < len(self.runtimes.layouts):
            self._set_layout(self._layouts_set, self.runtimes.layouts[self._layouts_set].walk.pack())
            self._layouts_set += 1
        with self._lock:
            self._layouts.pop(pid, None)
            if runtime is not None:
                while len(self._layouts) >= MAX_PROCESSES:
                    del self._layouts[next(iter(self._layouts))]
                self._layouts[pid] = self.runtimes.layouts[runtime.layout]
        return runtime

    def read(self, pid: int, addresses: Iterable[int]) -> None:
        """Reads code objects that the program has seen, before the process ends."""
        layout = self._layout(pid)
        if layout is not None:
            self._code.read(pid, layout, addresses)

    def names(self, pid: np.ndarray, code: np.ndarray, info: np.ndarray) -> tuple[list[JitName], np.ndarray]:
        """Returns the distinct names of p Python frames (uint32, uint64, uint64, as the program sends them), and the
        row (int64) of each frame's name. Reads the code objects that were not read before."""
        distinct = ids.combine(ids.combine(pid, code), info << np.uint64(8))
        _, first, row = np.unique(distinct, return_index=True, return_inverse=True)
        check, offset = info[first] >> np.uint64(32) & _CHECK, info[first] & _OFFSET
        keys = [Key(*fields) for fields in zip(pid[first].tolist(), code[first].tolist(), check.tolist(), strict=True)]
        known = self._code.find(keys)
        missing: dict[int, list[Key]] = {}
        for key in keys:
            if key not in known:
                missing.setdefault(key.pid, []).append(key)
        for process, of_process in missing.items():
            self.read(process, [key.address for key in of_process])
            known |= self._code.find(of_process)
        names = [
            JitName(code_object.function, code_object.file, code_object.lines.at(at))
            if (code_object := known.get(key))
            else UNNAMED
            for key, at in zip(keys, offset.tolist(), strict=True)
        ]
        return names, row

    def forget(self, pids: Iterable[int]) -> None:
        """Forgets processes that have ended and whose last samples have names."""
        gone = list(pids)
        self._code.forget(gone)
        with self._lock:
            for pid in gone:
                self._layouts.pop(pid, None)

    def _layout(self, pid: int) -> PythonLayout | None:
        """Returns the layout of a process; for one that was just forked, its parent's."""
        with self._lock:
            layout = self._layouts.get(pid)
            if layout is None and self._layouts and (parent := _parent(pid)) in self._layouts:
                layout = self._layouts[pid] = self._layouts[parent]
            return layout


def _parent(pid: int) -> int:
    """Returns the parent of a process; 0 if there is none, or no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
