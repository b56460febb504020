"""What the dynamic section of a 64-bit ELF file leads to: symbols by name, and relocations.

Formats: System V gABI (elf(5)); GNU hash tables. Tables are read entry by entry, as much as a lookup needs.
"""

import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from collector.elf.file import ElfFile
from collector.elf.headers import DYNAMIC

NEEDED = 1
_PLTRELSZ, _HASH, _STRTAB, _SYMTAB, _RELA, _RELASZ, _JMPREL = 2, 4, 5, 6, 7, 8, 23
_GNU_HASH = 0x6FFFFEF5
_MAX_BYTES = 1 << 16
_MAX_CHAIN = 4096
_MAX_RELOCATION_BYTES = 128 << 20
_RELOCATION_CHUNK = 24 << 15


class Symbol(NamedTuple):
    row: int  # in the symbol table
    value: int


class Relocation(NamedTuple):
    address: int  # ELF virtual address of what the dynamic linker fills
    kind: int
    symbol: int  # row in the symbol table; 0: none, it was bound when the file was linked
    addend: int


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

    def find(self, name: bytes, kind: int) -> Symbol | None:
        """Returns the symbol of that name and type that the file defines, by its hash table."""
        for index in self._candidates(name):
            name_offset, info, section, value = struct.unpack(
                "<IBxHQ8x", self.elf.at(self.tags.get(_SYMTAB, 0) + 24 * index, 24)
            )
            if info & 15 == kind and section and self._name_is(name_offset, name):
                return Symbol(index, value)
        return None

    def relocations(self, kinds: Collection[int]) -> list[Relocation]:
        """Returns the relocations of these types, each once."""
        found: list[Relocation] = []
        for table, size in ((_RELA, _RELASZ), (_JMPREL, _PLTRELSZ)):
            start, length = self.tags.get(table, 0), min(self.tags.get(size, 0), _MAX_RELOCATION_BYTES)
            for address in range(start, start + length, _RELOCATION_CHUNK):
                data = self.elf.at(address, min(_RELOCATION_CHUNK, start + length - address))
                rows = np.frombuffer(data, "<u8", len(data) // 24 * 3).reshape(-1, 3)
                wanted = rows[np.isin(rows[:, 1] & np.uint64(0xFFFFFFFF), list(kinds))]
                found += [Relocation(at, info & 0xFFFFFFFF, info >> 32, add) for at, info, add in wanted.tolist()]
        return list(dict.fromkeys(found))

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
