"""Locates addresses of the kernel: in its text, by build ID and offset from `_stext` (so KASLR does not matter), and in
modules."""

import functools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from collector.elf import identity
from collector.processes.mapped_files import MappedFile
from icestream import address_ranges
from icestream.v1.common_pb2 import Mapping

KERNEL_FILE = "[kernel]"
ELSEWHERE = MappedFile(Mapping.UNKNOWN, "", KERNEL_FILE)
"""For addresses outside the kernel's text and modules (bpf programs, trampolines), or hidden from us."""

_REFRESH_S = 10.0
_DEFAULT_TEXT_BYTES = 256 << 20


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
        return row + 1, np.where(row >= 0, addresses - self._bases[row], np.uint64(0))

    def _refresh(self) -> None:
        """Reads what is loaded now. It changes the rows of `files`, so it must come before rows are returned."""
        self._read = time.monotonic()
        areas = sorted([*_text(self._root), *_modules(self._root)], key=lambda area: area[0])
        areas = areas or [(0, 0, 0, ELSEWHERE)]
        self.files = [ELSEWHERE, *(area[3] for area in areas)]
        self._starts, self._ends, self._bases = (np.array([a[i] for a in areas], np.uint64) for i in range(3))


def kernel_build_id(root: Path = Path("/")) -> str:
    """ "gnu:<hex>", or "" where the kernel does not say."""
    return _note(root / "sys/kernel/notes")


def modules(root: Path = Path("/")) -> Iterator[tuple[str, int, int, str]]:
    """(name, text address, bytes from there, build ID) of the loaded modules whose addresses we may see."""
    try:
        lines = (root / "proc/modules").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        fields = line.split()
        if len(fields) < 6 or not (start := int(fields[5], 16)):
            continue
        name = fields[0]
        text = _number(root / "sys/module" / name / "sections/.text") or start
        yield name, text, start + int(fields[1]) - text, _note(root / "sys/module" / name / "notes/.note.gnu.build-id")


def stext(root: Path = Path("/")) -> int:
    """The address of `_stext`; 0 where the kernel hides it (kernel.kptr_restrict)."""
    try:
        with open(root / "proc/kallsyms", "rb") as symbols:
            return next((int(line[:16], 16) for line in symbols if line.rstrip().endswith(b" _stext")), 0)
    except OSError:
        return 0


def _text(root: Path) -> Iterator[tuple[int, int, int, MappedFile]]:
    if start := stext(root):
        yield start, start + text_bytes(root), start, MappedFile(Mapping.KERNEL, kernel_build_id(root), KERNEL_FILE)


def _modules(root: Path) -> Iterator[tuple[int, int, int, MappedFile]]:
    for name, text, size, build_id in modules(root):
        yield text, text + size, text, MappedFile(Mapping.MODULE, build_id, name)


def text_bytes(root: Path) -> int:
    """The size of the kernel's code: as /proc/iomem has it (to CAP_SYS_ADMIN), else up to the symbol `_etext`."""
    try:
        for line in (root / "proc/iomem").read_text().splitlines():
            if line.endswith(": Kernel code"):
                start, _, end = line.split()[0].partition("-")
                if int(end, 16):
                    return int(end, 16) + 1 - int(start, 16)
    except OSError:
        pass
    return _symbols_bytes(root)


@functools.cache
def _symbols_bytes(root: Path) -> int:
    """The size of the kernel's code, as its symbols say; it never changes, and takes tens of milliseconds to find."""
    start = stext(root)
    try:
        with open(root / "proc/kallsyms", "rb") as symbols:
            end = next((int(line[:16], 16) for line in symbols if line.rstrip().endswith(b" _etext")), 0)
    except OSError:
        end = 0
    return end - start if end > start > 0 else _DEFAULT_TEXT_BYTES


def _note(path: Path) -> str:
    try:
        return identity.build_id(path.read_bytes())
    except OSError:
        return ""


def _number(path: Path) -> int:
    try:
        return int(os.fsdecode(path.read_bytes()).strip(), 16)
    except (OSError, ValueError):
        return 0
