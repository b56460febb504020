"""Locates addresses of the kernel: in its text, by build ID and offset from `_stext` (so KASLR does not matter), and in
modules."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from collector.kernel_code import kernel_build_id, modules, stext, text_bytes
from collector.processes.mapped_files import MappedFile
from icestream import address_ranges
from icestream.v1.common_pb2 import Mapping

KERNEL_FILE = "[kernel]"
ELSEWHERE = MappedFile(Mapping.UNKNOWN, "", KERNEL_FILE)
"""For addresses outside the kernel's text and modules (bpf programs, trampolines), or hidden from us."""

_REFRESH_S = 10.0


class Kernel:
    """Addresses of the running kernel. `files[0]` is ELSEWHERE; `root` is another root of /proc and /sys for tests."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._read = float("-inf")
        self._refresh()

    def locate(self, addresses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows in `files` (int64) and position-independent addresses (uint64; 0 where nothing covers them)."""
        rows, located = self._locate(addresses)
        if not rows.all() and time.monotonic() - self._read > _REFRESH_S:
            self._refresh()
            rows, located = self._locate(addresses)
        return rows, located

    def _locate(self, addresses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        row = address_ranges.find(self._starts, self._ends, addresses)
        return row + 1, np.where(row >= 0, addresses - self._starts[row], np.uint64(0))

    def _refresh(self) -> None:
        """Reads what is loaded now. It changes the rows of `files`, so it must come before rows are returned."""
        self._read = time.monotonic()
        areas = sorted([*_text(self._root), *_modules(self._root)], key=lambda area: area.start)
        areas = areas or [_Area(0, 0, ELSEWHERE)]
        self.files = [ELSEWHERE, *(area.file for area in areas)]
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
