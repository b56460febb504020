"""Finds the processes whose generated code keeps no frame pointers, by what their files export.

Their stacks end there, and say so: what a frame pointer leads to from such code may look like a caller and is none.
"""

import os
import struct
from collections.abc import Callable, Iterable
from functools import partial

from collector.bpf.samples import COMPILERS
from collector.elf import dynamic, file
from collector.elf.dynamic import Dynamic
from collector.elf.error import ElfError
from collector.elf.reader import file_reader
from collector.processes.mapped_ranges import MappedRange
from collector.processes.patience import Patiently, at_once

MAX_FILES = 8192
_EXPORTED = {
    b"gHotSpotVMStructs": "HotSpot",
    b"ruby_version": "Ruby",  # YJIT
    b"execute_ex": "PHP",
    b"luaJIT_setmode": "LuaJIT",
}
_CALLED = {"beam.smp": "BEAM", "libj9jit": "OpenJ9"}  # by how the name of the file begins: these export nothing


class CompilersWithoutFramePointers:
    """For one thread. See Runtimes for the arguments."""

    def __init__(self, open_file: Callable[[str], int | None], patiently: Patiently = at_once) -> None:
        self._open_file, self._patiently = open_file, patiently
        self._files: dict[str, int | None] = {}

    def find(self, ranges: Iterable[MappedRange]) -> int | None:
        """Returns the number (COMPILERS) of the one in a process with these mappings; None if there is none, or no
        generated code."""
        ranges = list(ranges)
        if not any(each.anonymous for each in ranges):
            return None
        keys = {each.file_key: each for each in ranges if each.file_key and each.entry}
        return next((found for each in keys.values() if (found := self._of_file(each)) is not None), None)

    def _of_file(self, mapped: MappedRange) -> int | None:
        key = mapped.file_key
        if key not in self._files:
            called = os.path.basename(mapped.file.file)
            name = next((name for start, name in _CALLED.items() if called.startswith(start)), None)
            try:
                name = name or self._patiently(key, partial(self._read, key))
            except (FileNotFoundError, TimeoutError):  # gone, or its file system does not answer: it is tried again
                return None
            except (OSError, ElfError, struct.error):
                name = None
            while len(self._files) >= MAX_FILES:
                del self._files[next(iter(self._files))]
            self._files[key] = COMPILERS.index(name) if name else None
        return self._files[key]

    def _read(self, key: str) -> str | None:
        descriptor = self._open_file(key)
        if descriptor is None:  # another process may have it
            raise FileNotFoundError(key)
        try:
            elf = file.parse(file_reader(descriptor))
            linked = Dynamic(elf, dict(dynamic.entries(elf))) if elf.header.is_64 else None
            return next((name for symbol, name in _EXPORTED.items() if linked and linked.find(symbol)), None)
        finally:
            os.close(descriptor)
