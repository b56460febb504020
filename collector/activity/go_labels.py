"""Where a Go program keeps the pprof labels of the goroutine that runs on a thread.

Only programs that set labels count: others do not contain the function that sets them (the linker leaves it out). The
offsets depend on Go's minor version and are what DWARF says of programs that it built (runtime.m.curg,
runtime.g.labels; runtime.g.m is the same in all). Formats: Go's debug/buildinfo, src/runtime/runtime2.go; Drepper, "ELF
Handling For Thread-Local Storage".
"""

import re
import struct
from dataclasses import dataclass

from collector.activity.tls_symbol import local_exec
from collector.bpf.program import ContextKind, GoLabels, TlsPlace
from collector.elf import file, gopclntab, symbols
from collector.elf.file import ElfFile
from collector.elf.headers import TLS, X86_64
from collector.elf.reader import Read
from collector.elf.sections import SYMTAB, find
from collector.labels.text import clean

_OFFSETS = {
    18: GoLabels(goroutine=192, labels=360),
    19: GoLabels(goroutine=192, labels=360),
    20: GoLabels(goroutine=192, labels=360),
    21: GoLabels(goroutine=192, labels=344),
    22: GoLabels(goroutine=192, labels=344),
    23: GoLabels(goroutine=192, labels=352),
    24: GoLabels(goroutine=192, labels=352),
    25: GoLabels(goroutine=184, labels=344),
    26: GoLabels(goroutine=184, labels=352),
    27: GoLabels(goroutine=184, labels=352),
}
"""By minor version."""
_NO_MAP = 24
"""The first version in which labels are no map."""

_SETS_LABELS = b"\0runtime/pprof.runtime_setProfLabel\0"
_MOST_NAMES = 16 << 20  # the table of functions begins with their names
_CHUNK = 1 << 20

_MAGIC = b"\xff Go buildinf:"
_FLAGS, _INFO_HEAD, _MOST_VERSION = 15, 33, 127  # the head ends with the length of the version
_INLINE = 2  # of the flags, since Go 1.18: the version follows
_VERSION = re.compile(r"go1\.(\d+)(\.\d+)?([ -].*)?")

_SLOT = "runtime.tlsg"
_SLOT_BYTES = 8
_MOST_BYTES = 1 << 31  # of thread-local variables


@dataclass(frozen=True)
class GoProgram:
    """A Go program that sets labels, or a library. `place` leads to runtime.g; it is None if the labels cannot be read,
    for the reason `why`."""

    entry: int  # ELF virtual address where a program starts
    place: TlsPlace | None = None
    why: str = ""


def read_go(read: Read) -> GoProgram | None:
    """None if a file is no Go program, or one that sets no labels."""
    try:
        elf = file.parse(read)
        if not elf.header.is_64:
            return None
        info = find(elf.sections, ".go.buildinfo")
        if info is None or not _sets_labels(elf):
            return None
        return _program(elf, _version(read(info.offset, min(info.size, _INFO_HEAD + _MOST_VERSION))))
    except (struct.error, ValueError, OverflowError, OSError):
        return None


def _sets_labels(elf: ElfFile) -> bool:
    table = gopclntab.section(elf.sections)
    size = min(table.size, _MOST_NAMES) if table is not None else 0
    return table is not None and any(
        _SETS_LABELS in elf.read(table.offset + at, min(_CHUNK, size - at) + len(_SETS_LABELS))
        for at in range(0, size, _CHUNK)
    )


def _version(info: bytes) -> str:
    """The version of Go, such as "go1.26.1" or "go1.27rc1"; "" if it is older than 1.18."""
    if not info.startswith(_MAGIC) or len(info) < _INFO_HEAD or not info[_FLAGS] & _INLINE:
        return ""
    return info[_INFO_HEAD : _INFO_HEAD + min(info[_INFO_HEAD - 1], _MOST_VERSION)].decode("ascii", "replace")


def _program(elf: ElfFile, version: str) -> GoProgram:
    entry, known = elf.header.entry, _VERSION.fullmatch(version)
    minor = int(known[1]) if known else 0
    offsets = _OFFSETS.get(minor)
    if elf.header.machine != X86_64:
        return GoProgram(entry, why="the labels of Go programs are read on x86-64 only")
    if offsets is None:
        which = f"Go 1.{min(_OFFSETS)} to 1.{max(_OFFSETS)}"
        used = clean(version) or "Go of before 1.18"
        return GoProgram(entry, why=f"it sets pprof labels with {used}, and only those of releases of {which} are read")
    offset = _slot_offset(elf)
    if offset is None:
        return GoProgram(
            entry, why=f"its symbols are missing or too many, and other thread-local variables lie beside Go's {_SLOT}"
        )
    kind = ContextKind.GO_LABELS if minor >= _NO_MAP else ContextKind.GO_LABEL_MAP
    return GoProgram(entry, TlsPlace(offset, kind=kind, go=offsets))


def _slot_offset(elf: ElfFile) -> int | None:
    """From the thread pointer to where Go has the address of runtime.g."""
    block = next((segment for segment in reversed(elf.segments) if segment.kind == TLS), None)
    if block is None or block.memory_size == _SLOT_BYTES:
        return -_SLOT_BYTES
    value = symbols.defined(elf.read, elf.sections, SYMTAB, _SLOT.encode(), _MOST_NAMES)
    offset = local_exec(X86_64, value, block) if value is not None else 0
    return offset if -_MOST_BYTES < offset < 0 else None
