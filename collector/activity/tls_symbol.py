"""Where a process keeps, from a thread's pointer, a thread-local variable that one of its ELF files defines.

Formats: System V gABI (elf(5)); GNU hash tables; Drepper, "ELF Handling For Thread-Local Storage"; relocation numbers
of the psABIs of x86-64 and aarch64. Files come from anybody's container: counts and offsets are bounded, reads too.
Not followed: variables reached only by the general dynamic model (they lie behind the thread's DTV).
"""

import mmap
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

Read = Callable[[int, int], bytes]
"""(offset, size) -> at most size bytes from there."""

_PT_LOAD, _PT_DYNAMIC, _PT_TLS = 1, 2, 7
_DT_PLTRELSZ, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ, _DT_JMPREL = 2, 4, 5, 6, 7, 8, 23
_DT_GNU_HASH = 0x6FFFFEF5
_STT_TLS = 6
_X86_64, _AARCH64 = 62, 183
_TLSDESC = {_X86_64: 36, _AARCH64: 1031}
_TPOFF = {_X86_64: 18, _AARCH64: 1030}
_PAGE = mmap.PAGESIZE - 1
_MAX_HEADERS = 4096
_MAX_CHAIN = 4096
_MAX_RELOCATION_BYTES = 128 << 20
_RELOCATION_CHUNK = 24 << 15
_MAX_STATIC_OFFSET = 1 << 20  # aarch64: beyond, a descriptor's argument is an address, not an offset


@dataclass(frozen=True)
class Segment:
    offset: int
    vaddr: int
    size: int


@dataclass(frozen=True)
class TlsSymbol:
    """A thread-local variable that a file defines. Addresses are ELF virtual addresses in that file."""

    machine: int
    loads: tuple[Segment, ...]
    descriptors: tuple[int, ...]  # pairs {resolver, argument} that the dynamic linker fills
    offsets: tuple[int, ...]  # words it fills with the offset itself
    as_executable: int | None  # the offset where this file is the program itself

    def bias(self, start: int, offset: int) -> int | None:
        """Run-time address minus ELF address, of the file mapped from `offset` at `start`; None: no segment of it."""
        for segment in self.loads:
            if segment.offset & ~_PAGE == offset:
                return start - (segment.vaddr & ~_PAGE)
        return None

    def offset(self, read_memory: Read, bias: int, is_executable: bool) -> int | None:
        """Bytes from the thread pointer; None where the dynamic linker keeps it elsewhere, or has not linked yet.

        `read_memory` reads the process at run-time addresses; what it raises passes through.
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
        """Static offsets are negative on x86-64, small on aarch64; else it is an address for another resolver."""
        if not resolver:
            return False
        if self.machine == _X86_64:
            return -(1 << 31) < argument < 0
        return 0 < argument < _MAX_STATIC_OFFSET


def find(read: Read, name: bytes) -> TlsSymbol | None:
    """The variable `name` in the dynamic symbols of an ELF file; None where the file has none or is not such a file."""
    try:
        return _find(read, name)
    except (struct.error, ValueError, OverflowError, OSError, ZeroDivisionError):
        return None  # truncated or hostile: whoever could not be linked has no variable either


def _find(read: Read, name: bytes) -> TlsSymbol | None:
    start = read(0, 64)
    if start[:6] != b"\x7fELF\x02\x01":
        return None
    machine, program_at, size, count = struct.unpack_from("<18xH12xQ14xHH", start)
    if machine not in _TLSDESC or size != 56 or not 0 < count <= _MAX_HEADERS:
        return None
    loads, dynamic, tls = [], None, (0, 1)
    for kind, _, offset, vaddr, _, in_file, in_memory, align in struct.iter_unpack(
        "<IIQQQQQQ", read(program_at, 56 * count)
    ):
        if kind == _PT_LOAD:
            loads.append(Segment(offset, vaddr, in_file))
        elif kind == _PT_DYNAMIC:
            dynamic = (offset, min(in_file, 1 << 16) // 16 * 16)
        elif kind == _PT_TLS:
            tls = (in_memory, max(align, 1))
    if dynamic is None:
        return None
    image = _Image(read, tuple(loads), dict(struct.iter_unpack("<QQ", read(*dynamic))))
    symbol = next((i for i in image.candidates(name) if image.is_tls(i, name)), None)
    if symbol is None:
        return None
    value = image.symbol(symbol)[2]
    descriptors, offsets = (
        image.relocations(symbol, value, _TLSDESC[machine]),
        image.relocations(symbol, value, _TPOFF[machine]),
    )
    return TlsSymbol(machine, tuple(loads), descriptors, offsets, _local_exec(machine, value, *tls))


@dataclass(frozen=True)
class _Image:
    """A file seen through what its dynamic section says."""

    read: Read
    loads: tuple[Segment, ...]
    dynamic: dict[int, int]

    def at(self, vaddr: int, size: int) -> bytes:
        for segment in self.loads:
            if segment.vaddr <= vaddr < segment.vaddr + segment.size:
                return self.read(segment.offset + vaddr - segment.vaddr, size)
        return b""

    def symbol(self, index: int) -> tuple[int, int, int]:
        """Name (offset in the strings), type, value."""
        name, info, section, value = struct.unpack(
            "<IBxHQ8x", self.at(self.dynamic.get(_DT_SYMTAB, 0) + 24 * index, 24)
        )
        return name, info & 15 if section else -1, value

    def is_tls(self, index: int, name: bytes) -> bool:
        name_at, kind, _ = self.symbol(index)
        return kind == _STT_TLS and self.at(self.dynamic.get(_DT_STRTAB, 0) + name_at, len(name) + 1) == name + b"\0"

    def candidates(self, name: bytes) -> Iterator[int]:
        """Indices of symbols whose hash is the name's."""
        if _DT_GNU_HASH in self.dynamic:
            return self._gnu_hash(self.dynamic[_DT_GNU_HASH], _gnu(name))
        if _DT_HASH in self.dynamic:
            return self._sysv_hash(self.dynamic[_DT_HASH], _sysv(name))
        return iter(())

    def _gnu_hash(self, table: int, wanted: int) -> Iterator[int]:
        buckets, first, bloom, _ = struct.unpack("<IIII", self.at(table, 16))
        chains = table + 16 + 8 * bloom + 4 * buckets
        (index,) = struct.unpack("<I", self.at(chains - 4 * buckets + 4 * (wanted % buckets), 4))
        if index < first:
            return
        for _ in range(_MAX_CHAIN):
            (value,) = struct.unpack("<I", self.at(chains + 4 * (index - first), 4))
            if value | 1 == wanted | 1:
                yield index
            if value & 1:
                return
            index += 1

    def _sysv_hash(self, table: int, wanted: int) -> Iterator[int]:
        buckets, _ = struct.unpack("<II", self.at(table, 8))
        (index,) = struct.unpack("<I", self.at(table + 8 + 4 * (wanted % buckets), 4))
        for _ in range(_MAX_CHAIN):
            if not index:
                return
            yield index
            (index,) = struct.unpack("<I", self.at(table + 8 + 4 * (buckets + index), 4))

    def relocations(self, symbol: int, value: int, kind: int) -> tuple[int, ...]:
        """Where the dynamic linker is asked for the variable in this way."""
        found: list[int] = []
        for table, size in ((_DT_RELA, _DT_RELASZ), (_DT_JMPREL, _DT_PLTRELSZ)):
            start, wanted = self.dynamic.get(table, 0), min(self.dynamic.get(size, 0), _MAX_RELOCATION_BYTES)
            for at in range(start, start + wanted, _RELOCATION_CHUNK):
                data = self.at(at, min(_RELOCATION_CHUNK, start + wanted - at))
                rows = np.frombuffer(data, "<u8", len(data) // 24 * 3).reshape(-1, 3)
                by, how = rows[:, 1] >> np.uint64(32), rows[:, 1] & np.uint64(0xFFFFFFFF)
                # By its symbol, or, where the name was bound at link time, by its place among the file's variables.
                same = (by == symbol) | ((by == 0) & (rows[:, 2] == value))
                found += rows[(how == kind) & same, 0].tolist()
        return tuple(dict.fromkeys(found))


def _local_exec(machine: int, value: int, size: int, align: int) -> int:
    """The offset of a variable of the program itself, whose block lies next to the thread pointer."""
    if machine == _X86_64:
        return value - (size + align - 1) // align * align
    return value + (16 + align - 1) // align * align


def _gnu(name: bytes) -> int:
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def _sysv(name: bytes) -> int:
    value = 0
    for byte in name:
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
    return value
