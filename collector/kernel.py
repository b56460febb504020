"""Locates addresses of the kernel: in its text, by build ID and offset from `_stext` (so KASLR does not matter), in
modules, and by name in the code that it generates."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from collector.generated_code import GeneratedCode
from collector.kernel_code import kernel_build_id, modules, stext, text_bytes
from collector.processes.mapped_files import MappedFile
from collector.processes.mapped_history import Located
from collector.processes.perfmap import JitName
from icestream.columns import address_ranges
from icestream.v1.common_pb2 import Mapping

KERNEL_FILE = "[kernel]"
ELSEWHERE = MappedFile(Mapping.UNKNOWN, "", KERNEL_FILE)
"""For addresses outside the kernel's text and modules that have no name, or that are hidden from us."""

GENERATED = MappedFile(Mapping.NAMED, "", KERNEL_FILE)

_REFRESH_S = 10.0


class Kernel:
    """Addresses of the running kernel; `root` is another root of /proc and /sys for tests."""

    def __init__(self, root: Path = Path("/"), generated: GeneratedCode | None = None) -> None:
        self._root = root
        self._generated = generated or GeneratedCode(root)
        self._read = float("-inf")
        self._refresh()

    def changes(self) -> np.ndarray:
        """The times (uint64, ascending) at which generated code went, so that other code may be in its place."""
        return self._generated.changes()

    def is_generated(self, addresses: np.ndarray) -> np.ndarray:
        """Which addresses (uint64) are neither in the kernel's text nor in modules (bool)."""
        outside: np.ndarray = address_ranges.find(self._starts, self._ends, addresses) < 0
        return outside

    def locate(self, addresses: np.ndarray, times_monotonic_ns: np.ndarray) -> Located:
        """Locates addresses as of a time each (both uint64). What nothing covers is ELSEWHERE at 0."""
        outside = self.is_generated(addresses)
        named, names = self._generated.find(addresses[outside], times_monotonic_ns[outside])
        if (named < 0).any() and time.monotonic() - self._read > _REFRESH_S:
            self._refresh()
        row = address_ranges.find(self._starts, self._ends, addresses)
        located = Located(
            row + 1, np.where(row >= 0, addresses - self._starts[row], np.uint64(0)), np.full(len(row), -1),
            [ELSEWHERE, *self._files, GENERATED], [JitName(name, "") for name in names],
        )  # fmt: skip
        located.name[outside] = np.where(row[outside] < 0, named, -1)
        located.file[located.name >= 0] = len(located.files) - 1
        return located

    def _refresh(self) -> None:
        """Reads what is loaded now."""
        self._read = time.monotonic()
        areas = sorted([*_text(self._root), *_modules(self._root)], key=lambda area: area.start)
        areas = areas or [_Area(0, 0, ELSEWHERE)]
        self._files = [area.file for area in areas]
        self._starts = np.array([area.start for area in areas], np.uint64)
        self._ends = np.array([area.end for area in areas], np.uint64)


class _Area(NamedTuple):
    """Addresses [start, end) with the code of a file."""

    start: int
    end: int
    file: MappedFile


def _text(root: Path) -> Iterator[_Area]:
    if start := stext(root):
        yield _Area(start, start + text_bytes(root), MappedFile(Mapping.KERNEL, kernel_build_id(root), KERNEL_FILE))


def _modules(root: Path) -> Iterator[_Area]:
    for one in modules(root):
        yield _Area(one.text, one.text + one.size, MappedFile(Mapping.MODULE, one.build_id, one.name))
