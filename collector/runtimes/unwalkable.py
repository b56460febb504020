"""Finds the processes whose generated code keeps no frame pointers, by what their files export.

Their stacks end there, and say so: what a frame pointer leads to from such code may look like a caller and is none.
"""

import os
import struct
from collections.abc import Callable, Iterable

from collector.bpf.samples import COMPILERS
from collector.elf import dynamic, file
from collector.elf.dynamic import Dynamic
from collector.elf.error import ElfError
from collector.elf.reader import file_reader
from collector.processes.mapped_ranges import MappedRange
from collector.processes.patience import Patiently, at_once
from collector.runtimes.files import FilesOnce

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
        self._files = FilesOnce(open_file, patiently, _read, MAX_FILES, (OSError, ElfError, struct.error))

    def find(self, ranges: Iterable[MappedRange]) -> int | None:
        """Returns the number (COMPILERS) of the one in a process with these mappings; None if there is none, or no
        generated code."""
        ranges = list(ranges)
        if not any(each.anonymous for each in ranges):
            return None
        keys = {each.file_key: each for each in ranges if each.file_key and each.entry}
        return next((found for each in keys.values() if (found := self._of_file(each)) is not None), None)

    def _of_file(self, mapped: MappedRange) -> int | None:
        called = os.path.basename(mapped.file.file)
        name = next((name for start, name in _CALLED.items() if called.startswith(start)), None)
        try:
            name = name or self._files.find(mapped.file_key)
        except (FileNotFoundError, TimeoutError):
            return None
        return COMPILERS.index(name) if name else None


def _read(descriptor: int) -> str | None:
    elf = file.parse(file_reader(descriptor))
    linked = Dynamic(elf, dict(dynamic.entries(elf))) if elf.header.is_64 else None
    return next((name for symbol, name in _EXPORTED.items() if linked and linked.find(symbol)), None)
