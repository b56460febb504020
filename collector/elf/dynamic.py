"""What the dynamic section of a 64-bit ELF file leads to: symbols by name, and relocations.

Formats: System V gABI (elf(5)); GNU hash tables. Tables are read entry by entry, as much as a lookup needs.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from collector.elf.file import ElfFile
from collector.elf.headers import DYNAMIC

NEEDED = 1
_PLTRELSZ, _HASH, _STRTAB, _SYMTAB, _RELA, _RELASZ, _JMPREL = 2, 4, 5, 6, 7, 8, 23
_GNU_HASH = 0x6FFFFEF5
MAX_RELOCATION_BYTES = 128 << 20
RELOCATION = np.dtype([("address", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<u8")])
"""`address`: the ELF virtual address of what the dynamic linker fills; `symbol`: row in the symbol table, 0 if it was
bound when the file was linked."""

_MAX_BYTES = 1 << 16
_MAX_CHAIN = 1024
_PART_BYTES = RELOCATION.itemsize << 15


class Symbol(NamedTuple):
    row: int  # in the symbol table
    value: int
    size: int


def entries(elf: ElfFile) -> list[tuple[int, int]]:
    """Returns (tag, value) of the dynamic section; [] if there is none. Raises OSError."""
    segment = next((segment for segment in elf.segments if segment.kind == DYNAMIC), None)
    data = elf.read(segment.offset, min(segment.size, _MAX_BYTES)) if segment is not None else b""
    return list(struct.iter_unpack("<QQ", data[: len(data) // 16 * 16]))


@dataclass(frozen=True)
class Dynamic:
    """A file and its dynamic section by tag. The methods raise OSError, and struct.error if the file is damaged."""

    elf: ElfFile
    tags: dict[int, int]

    def find(self, name: bytes, kind: int | None = None) -> Symbol | None:
        """Returns the symbol of that name (and type) that the file defines, by its hash table."""
        for index in self._candidates(name):
            name_offset, info, section, value, size = struct.unpack(
                "<IBxHQQ", self.elf.at(self.tags.get(_SYMTAB, 0) + 24 * index, 24)
            )
            if kind in (None, info & 15) and section and self._name_is(name_offset, name):
                return Symbol(index, value, size)
        return None

    def relocations(self) -> Iterator[np.ndarray]:
        """Yields the relocations (RELOCATION) in parts, MAX_RELOCATION_BYTES at most. Some may come twice."""
        left = MAX_RELOCATION_BYTES
        for table, size in ((_RELA, _RELASZ), (_JMPREL, _PLTRELSZ)):
            start = self.tags.get(table, 0)
            end = start + min(self.tags.get(size, 0), left)
            left -= end - start
            for address in range(start, end, _PART_BYTES):
                data = self.elf.at(address, min(_PART_BYTES, end - address))
                yield np.frombuffer(data, RELOCATION, len(data) // RELOCATION.itemsize)

    def _name_is(self, offset: int, name: bytes) -> bool:
        return self.elf.at(self.tags.get(_STRTAB, 0) + offset, len(name) + 1) == name + b"\0"

    def _candidates(self, name: bytes) -> Iterator[int]:
        """Indices of the symbols whose hash is the name's."""
        if _GNU_HASH in self.tags:
            return self._by_gnu_hash(self.tags[_GNU_HASH], _gnu_hash(name))
        if _HASH in self.tags:
            return self._by_hash(self.tags[_HASH], _sysv_hash(name))
        return iter(())

    def _by_gnu_hash(self, table: int, wanted: int) -> Iterator[int]:
        buckets, first, bloom, _ = struct.unpack("<IIII", self.elf.at(table, 16))
        if not buckets:
            return
        chains = table + 16 + 8 * bloom + 4 * buckets
        (index,) = struct.unpack("<I", self.elf.at(chains - 4 * buckets + 4 * (wanted % buckets), 4))
        if index < first:
            return
        for _ in range(_MAX_CHAIN):
            (value,) = struct.unpack("<I", self.elf.at(chains + 4 * (index - first), 4))
            if value | 1 == wanted | 1:
                yield index
            if value & 1:
                return
            index += 1

    def _by_hash(self, table: int, wanted: int) -> Iterator[int]:
        buckets, _ = struct.unpack("<II", self.elf.at(table, 8))
        if not buckets:
            return
        (index,) = struct.unpack("<I", self.elf.at(table + 8 + 4 * (wanted % buckets), 4))
        for _ in range(_MAX_CHAIN):
            if not index:
                return
            yield index
            (index,) = struct.unpack("<I", self.elf.at(table + 8 + 4 * (buckets + index), 4))


def _gnu_hash(name: bytes) -> int:
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def _sysv_hash(name: bytes) -> int:
    value = 0
    for byte in name:
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
    return value
