"""The eBPF maps with unwinding tables and mappings (bpf/maps.h), as arrays."""

import mmap
import struct
from collections.abc import Callable

import numpy as np

from collector.bpf.loaders.libbpf import Map
from collector.bpf.program import Image
from collector.unwind.tables.table import RULE

MAPPING = np.dtype([("start", "<u8"), ("end", "<u8"), ("bias", "<u8"), ("table", "<u8")])
"""`table`: number of chunks << 32 | the first one. A walk may read it at any moment: write the bias first."""
CHUNK = np.dtype([("first", "<u4"), ("count", "<u4")])
UNKNOWN_CODE, FRAME_POINTERS, UNREQUESTED_CODE, RETURN_PROBES, UNWALKABLE_CODE = range(5)
"""`table` of a mapping without chunks."""
NOT_LOADED = 0xFFFFFFFF
"""`first` of a chunk whose rows user space is asked for."""

MAX_MAPPINGS = 1 << 16
MAX_CHUNKS = 1 << 16
MAX_RULES = 1 << 16
ROWS_PER_PAGE = 1024


class UnwindMaps:
    """`map_fd` returns the descriptor of a map by name; `pages` is the size of the map of rows."""

    def __init__(self, map_fd: Callable[[str], int], pages: int) -> None:
        self._memory: list[mmap.mmap] = []
        self.mappings = self._array(map_fd("mappings"), MAX_MAPPINGS, MAPPING)
        self.chunks = self._array(map_fd("chunks"), MAX_CHUNKS, CHUNK)
        self.rules = self._array(map_fd("rules"), MAX_RULES, RULE)
        self.rows = pages * ROWS_PER_PAGE
        self._rows_fd = map_fd("rows")
        self._processes = Map(map_fd("processes"))
        self._evictions = self._array(map_fd("evictions"), 1, np.dtype("<u4"))
        self._generation = 0

    def count_eviction(self) -> None:
        """Call it when no mapping leads to a file any more, and before its chunks, rows and rules are used again. The
        program cuts the stacks of walks that began before."""
        self._evictions[0] += 1

    def write_rows(self, start: int, rows: np.ndarray) -> None:
        """Maps the pages only for the write: otherwise all of them would count as memory of this process."""
        begin = 4 * start // mmap.PAGESIZE * mmap.PAGESIZE
        end = -(-4 * (start + len(rows)) // mmap.PAGESIZE) * mmap.PAGESIZE
        if end == begin:
            return
        with mmap.mmap(self._rows_fd, end - begin, offset=begin) as pages:
            at = 4 * start - begin
            pages[at : at + 4 * len(rows)] = rows.astype("<u4").tobytes()

    def set_process(self, pid: int, image: Image, first: int, count: int, runtimes: int) -> None:
        """Sets the mappings of a process: `count` rows from `first` on. From then on those before can be used for
        others: the program cuts the stacks of walks that used them. Raises OSError; E2BIG if the map is full."""
        self._generation = (self._generation + 1) % (1 << 32)
        value = struct.pack("=QQIIII", *image, runtimes, first, count, self._generation)
        self._processes.update(struct.pack("=I", pid), value)

    def forget_process(self, pid: int) -> None:
        self._processes.delete(struct.pack("=I", pid))

    def close(self) -> None:
        del self.mappings, self.chunks, self.rules, self._evictions
        for memory in self._memory:
            memory.close()

    def _array(self, fd: int, entries: int, kind: np.dtype) -> np.ndarray:
        size = -(-entries * kind.itemsize // mmap.PAGESIZE) * mmap.PAGESIZE
        memory = mmap.mmap(fd, size)
        self._memory.append(memory)
        return np.frombuffer(memory, kind, entries)
