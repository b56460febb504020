"""Where the threads of a process keep a thread-local variable that one of its ELF files defines.

The dynamic linker gives the variables of a file a block in each thread. The block is static, so that it lies equally
far from the thread pointer in every thread, or dynamic: then each thread has the block's address in its DTV (dynamic
thread vector), at the file's module ID. Formats: Drepper, "ELF Handling For Thread-Local Storage"; relocation numbers
of the psABIs of x86-64 and aarch64; glibc, sysdeps/x86_64/dl-tlsdesc.h and elf/dl-tls.c; musl, ldso/dynlink.c.
"""

import enum
import struct
from dataclasses import dataclass

from collector.bpf.program import TlsPlace
from collector.elf import dynamic, file
from collector.elf.dynamic import Dynamic
from collector.elf.headers import AARCH64, TLS, X86_64, Segment
from collector.elf.reader import Read

_FUNCTION, _TLS_SYMBOL, _OBJECT = 2, 6, 1
_TLSDESC = {X86_64: 36, AARCH64: 1031}
_TPOFF = {X86_64: 18, AARCH64: 1030}
_DTPMOD = {X86_64: 16, AARCH64: 1028}
_MAX_PLACES = 64  # of one kind that are looked at: any of them says where the variable is
_MAX_STATIC_OFFSET = 1 << 20  # aarch64: beyond it, a descriptor's argument is an address, not an offset
_MAX_MODULE = 1 << 20
_MAX_BLOCK = 1 << 31  # bytes of a file's thread-local variables
_MASK = (1 << 64) - 1
_DAMAGED = struct.error, ValueError, OverflowError, OSError


class Libc(enum.Enum):
    """Which C library a process has: they lay out the DTV differently."""

    GLIBC = "glibc"
    MUSL = "musl"


# Distance from the thread pointer to the address of the DTV, and bytes of an entry of the DTV
_DTV = {
    (Libc.GLIBC, X86_64): (8, 16),
    (Libc.GLIBC, AARCH64): (0, 16),
    (Libc.MUSL, X86_64): (8, 8),
    (Libc.MUSL, AARCH64): (-8, 8),
}


@dataclass(frozen=True)
class TlsSymbol:
    """A thread-local variable that a file defines. Addresses are ELF virtual addresses in that file."""

    name: bytes
    machine: int
    value: int  # offset in the file's block
    entry: int  # where a program starts
    descriptors: tuple[int, ...]  # pairs {resolver, argument} that the dynamic linker fills
    offsets: tuple[int, ...]  # words that it fills with the offset from the thread pointer
    modules: tuple[int, ...]  # words that it fills with the file's module ID
    as_executable: int | None  # the offset from the thread pointer if this file is the program itself

    def place(self, read_memory: Read, bias: int, is_executable: bool, libc: Libc | None) -> TlsPlace | None:
        """Returns where the variable is; None if the dynamic linker has not linked the file yet, or if the variable is
        behind a DTV of an unknown C library.

        `bias` is run-time address minus ELF address. `read_memory` reads the process at run-time addresses; this method
        raises what it raises.
        """
        descriptors = [
            struct.unpack("<Qq", pair)
            for address in self.descriptors
            if len(pair := read_memory(bias + address & _MASK, 16)) == 16
        ]
        for resolver, argument in descriptors:
            if resolver and self._is_static(argument):
                return TlsPlace(argument)
        for address in self.offsets:
            word = read_memory(bias + address & _MASK, 8)
            if len(word) == 8 and self._is_static(struct.unpack("<q", word)[0]):
                return TlsPlace(struct.unpack("<q", word)[0])
        if is_executable and self.as_executable is not None:
            return TlsPlace(self.as_executable)
        return self._dynamic(read_memory, bias, [argument for resolver, argument in descriptors if resolver], libc)

    def _dynamic(self, read_memory: Read, bias: int, arguments: list[int], libc: Libc | None) -> TlsPlace | None:
        if libc is None or (libc, self.machine) not in _DTV:
            return None
        dtv, entry_bytes = _DTV[libc, self.machine]
        for argument in arguments:  # the address of: module ID, offset, and in glibc the generation
            words = read_memory(argument & _MASK, 24)
            if len(words) == 24:
                module, offset, generation = struct.unpack("<3Q", words)
                if offset == self.value and 0 < module < _MAX_MODULE:
                    return TlsPlace(offset, module, generation if libc is Libc.GLIBC else 0, dtv, entry_bytes)
        for address in self.modules:
            word = read_memory(bias + address & _MASK, 8)
            if len(word) == 8 and 0 < (module := struct.unpack("<Q", word)[0]) < _MAX_MODULE:
                return TlsPlace(self.value, module, 0, dtv, entry_bytes)
        return None

    def _is_static(self, argument: int) -> bool:
        """Static offsets are negative on x86-64 and small on aarch64; others are addresses."""
        if self.machine == X86_64:
            return -(1 << 31) < argument < 0
        return 0 < argument < _MAX_STATIC_OFFSET


@dataclass(frozen=True)
class TlsFile:
    """What an ELF file says about thread-local variables."""

    symbol: TlsSymbol | None = None
    libc: Libc | None = None  # which C library it is, or is a part of


def read_file(read: Read, *names: bytes) -> TlsFile:
    """Looks for the first of these variables among the dynamic symbols of an ELF file. A damaged file defines nothing:
    it cannot be linked."""
    try:
        linked = _linked(read)
        if linked is None:
            return TlsFile()
        found = (symbol for name in names if (symbol := _find(linked, name)) is not None)
        return TlsFile(next(found, None), _libc(linked))
    except _DAMAGED:
        return TlsFile()


def read_constant(read: Read, name: bytes) -> int | None:
    """Returns the constant of 4 bytes that an ELF file defines under this name; None if it has none."""
    try:
        linked = _linked(read)
        symbol = linked.find(name, _OBJECT) if linked is not None else None
        return None if linked is None or symbol is None else struct.unpack("<I", linked.elf.at(symbol.value, 4))[0]
    except _DAMAGED:
        return None


def _linked(read: Read) -> Dynamic | None:
    elf = file.parse(read)
    if not elf.header.is_64 or elf.header.machine not in _TLSDESC:
        return None
    return Dynamic(elf, dict(dynamic.entries(elf)))


def _libc(linked: Dynamic) -> Libc | None:
    """glibc's dynamic linker is a file of its own, musl's is also the C library."""
    if linked.find(b"__tls_get_addr", _FUNCTION) is None:
        return None
    if linked.find(b"_rtld_global", _OBJECT) is not None:
        return Libc.GLIBC
    return Libc.MUSL if linked.find(b"__libc_start_main", _FUNCTION) is not None else None


def _find(linked: Dynamic, name: bytes) -> TlsSymbol | None:
    symbol = linked.find(name, _TLS_SYMBOL)
    if symbol is None or symbol.value >= _MAX_BLOCK:
        return None
    elf, machine = linked.elf, linked.elf.header.machine
    tlsdesc, tpoff, dtpmod = _TLSDESC[machine], _TPOFF[machine], _DTPMOD[machine]
    block = next((segment for segment in reversed(elf.segments) if segment.kind == TLS), None)
    # Where the dynamic linker fills something, by the type of the relocation; each place once.
    filled: dict[int, dict[int, None]] = {tlsdesc: {}, tpoff: {}, dtpmod: {}}
    for part in linked.relocations():
        # One that was bound at link time has no symbol, but the variable's offset as its addend. Without a symbol, a
        # module ID is the file's own.
        bound = (part["symbol"] == 0) & ((part["kind"] == dtpmod) | (part["addend"] == symbol.value))
        mine = part[bound | (part["symbol"] == symbol.row)]
        for kind, places in filled.items():
            found = mine["address"][mine["kind"] == kind][: _MAX_PLACES - len(places)]
            places.update(dict.fromkeys(found.tolist()))
    as_executable = local_exec(machine, symbol.value, block)
    return TlsSymbol(
        name,
        machine,
        symbol.value,
        elf.header.entry,
        tuple(filled[tlsdesc]),
        tuple(filled[tpoff]),
        tuple(filled[dtpmod]),
        as_executable if abs(as_executable) < _MAX_BLOCK else None,
    )


def local_exec(machine: int, value: int, block: Segment | None) -> int:
    """The offset of a variable of the program itself, whose block lies next to the thread pointer."""
    size, align = (block.memory_size, max(block.align, 1)) if block is not None else (0, 1)
    if machine == X86_64:
        return value - (size + align - 1) // align * align
    return value + (16 + align - 1) // align * align
