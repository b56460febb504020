"""Where a process keeps a thread-local variable that one of its ELF files defines, relative to a thread's pointer.

Formats: Drepper, "ELF Handling For Thread-Local Storage"; relocation numbers of the psABIs of x86-64 and aarch64.
Variables that only the general dynamic model reaches (they lie behind the thread's DTV) are not supported.
"""

import mmap
import struct
from dataclasses import dataclass

from collector.elf import dynamic, file
from collector.elf.dynamic import Dynamic
from collector.elf.headers import AARCH64, LOAD, TLS, X86_64, Segment
from collector.elf.reader import Read

_TLS_SYMBOL = 6
_TLSDESC = {X86_64: 36, AARCH64: 1031}
_TPOFF = {X86_64: 18, AARCH64: 1030}
_PAGE = mmap.PAGESIZE - 1
_MAX_STATIC_OFFSET = 1 << 20  # aarch64: beyond it, a descriptor's argument is an address, not an offset


@dataclass(frozen=True)
class TlsSymbol:
    """A thread-local variable that a file defines. Addresses are ELF virtual addresses in that file."""

    machine: int
    loads: tuple[Segment, ...]
    descriptors: tuple[int, ...]  # pairs {resolver, argument} that the dynamic linker fills
    offsets: tuple[int, ...]  # words that it fills with the offset itself
    as_executable: int | None  # the offset if this file is the program itself

    def bias(self, start: int, offset: int) -> int | None:
        """Returns run-time address minus ELF address of the file mapped from `offset` at `start`; None if no segment
        begins there."""
        for segment in self.loads:
            if segment.offset & ~_PAGE == offset:
                return start - (segment.vaddr & ~_PAGE)
        return None

    def offset(self, read_memory: Read, bias: int, is_executable: bool) -> int | None:
        """Returns bytes from the thread pointer; None if the dynamic linker keeps the variable elsewhere, or has not
        linked the file yet.

        `read_memory` reads the process at run-time addresses; this method raises what it raises.
        """
        for address in self.descriptors:
            pair = read_memory(bias + address, 16)
            if len(pair) == 16 and self._is_static(*struct.unpack("<Qq", pair)):
                return int(struct.unpack("<Qq", pair)[1])
        for address in self.offsets:
            word = read_memory(bias + address, 8)
            if len(word) == 8 and self._is_static(1, struct.unpack("<q", word)[0]):
                return int(struct.unpack("<q", word)[0])
        return self.as_executable if is_executable else None

    def _is_static(self, resolver: int, argument: int) -> bool:
        """Static offsets are negative on x86-64 and small on aarch64; others are addresses for another resolver."""
        if not resolver:
            return False
        if self.machine == X86_64:
            return -(1 << 31) < argument < 0
        return 0 < argument < _MAX_STATIC_OFFSET


def find(read: Read, name: bytes) -> TlsSymbol | None:
    """Returns the variable `name` among the dynamic symbols of an ELF file; None if the file does not define it, or is
    damaged: a file that cannot be linked has no variables."""
    try:
        return _find(read, name)
    except (struct.error, ValueError, OverflowError, OSError, ZeroDivisionError):
        return None


def _find(read: Read, name: bytes) -> TlsSymbol | None:
    elf = file.parse(read)
    machine = elf.header.machine
    if not elf.header.is_64 or machine not in _TLSDESC:
        return None
    linked = Dynamic(elf, dict(dynamic.entries(elf)))
    symbol = linked.find(name, _TLS_SYMBOL)
    if symbol is None:
        return None
    block = next((segment for segment in reversed(elf.segments) if segment.kind == TLS), None)
    size, align = (block.memory_size, max(block.align, 1)) if block is not None else (0, 1)
    return TlsSymbol(
        machine,
        tuple(segment for segment in elf.segments if segment.kind == LOAD),
        linked.relocations(symbol, _TLSDESC[machine]),
        linked.relocations(symbol, _TPOFF[machine]),
        _local_exec(machine, symbol.value, size, align),
    )


def _local_exec(machine: int, value: int, size: int, align: int) -> int:
    """The offset of a variable of the program itself, whose block lies next to the thread pointer."""
    if machine == X86_64:
        return value - (size + align - 1) // align * align
    return value + (16 + align - 1) // align * align
