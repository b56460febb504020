"""Where the code of the running kernel and of its modules is, and their build IDs. `root` is another root of /proc and
/sys for tests."""

import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from collector.elf import identity

_DEFAULT_TEXT_BYTES = 256 << 20


def kernel_build_id(root: Path = Path("/")) -> str:
    """ "gnu:<hex>", or "" where the kernel does not say."""
    return _note(root / "sys/kernel/notes")


class Module(NamedTuple):
    """A loaded module of the kernel."""

    name: str
    text: int  # address
    size: int  # bytes from there
    build_id: str


def modules(root: Path = Path("/")) -> Iterator[Module]:
    """The loaded modules whose addresses we may see."""
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
        build_id = _note(root / "sys/module" / name / "notes/.note.gnu.build-id")
        yield Module(name, text, start + int(fields[1]) - text, build_id)


def stext(root: Path = Path("/")) -> int:
    """The address of `_stext`; 0 where the kernel hides it (kernel.kptr_restrict)."""
    try:
        with open(root / "proc/kallsyms", "rb") as symbols:
            return next((int(line[:16], 16) for line in symbols if line.rstrip().endswith(b" _stext")), 0)
    except OSError:
        return 0


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
