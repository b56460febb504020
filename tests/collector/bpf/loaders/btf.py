"""Where the kernel's own description of its types (BTF) says that fields lie; Documentation/bpf/btf.rst."""

import struct
from dataclasses import dataclass
from pathlib import Path

_STRUCT, _UNION = 4, 5
_WORDS_AFTER = {1: 1, 3: 3, 14: 1, 17: 1}  # by kind; those with a number of parts are below
_PART_WORDS = {_STRUCT: 3, _UNION: 3, 6: 2, 13: 2, 15: 3, 19: 3}


@dataclass(frozen=True)
class Structure:
    name: str
    members: list[tuple[str, int, int]]  # name, type, offset in bits (bit fields: with their size above bit 24)


class Btf:
    def __init__(self, data: bytes) -> None:
        header_bytes, type_at, type_bytes, string_at = struct.unpack_from("<4I", data, 4)
        self._strings = data[header_bytes + string_at :]
        words = memoryview(data[header_bytes + type_at :][:type_bytes]).cast("I")
        self._structures: dict[int, Structure] = {}
        at, number = 0, 1
        while at < len(words):
            name, info = words[at], words[at + 1]
            kind, parts = info >> 24 & 0x1F, info & 0xFFFF
            at += 3
            if kind in (_STRUCT, _UNION):
                members = [tuple(words[at + 3 * i : at + 3 * i + 3]) for i in range(parts)]
                self._structures[number] = Structure(
                    self._string(name), [(self._string(m[0]), m[1], m[2] & 0xFFFFFF) for m in members]
                )
            at += parts * _PART_WORDS[kind] if kind in _PART_WORDS else _WORDS_AFTER.get(kind, 0)
            number += 1

    def offset(self, structure: str, field: str) -> int | None:
        """Bytes from the begin of the first structure of that name; None: it has no such field."""
        found = next(each for each in self._structures.values() if each.name == structure)
        first, _, rest = field.partition(".")
        for name, kind, bits in found.members:
            inner = self._structures.get(kind)
            if name == first:
                nested = self.offset(inner.name, rest) if rest and inner else 0
                return None if nested is None else bits // 8 + nested
            if not name and inner and (within := self._within(inner, field)) is not None:
                return bits // 8 + within
        return None

    def _within(self, structure: Structure, field: str) -> int | None:
        for name, kind, bits in structure.members:
            if name == field:
                return bits // 8
            inner = self._structures.get(kind)
            if not name and inner and (within := self._within(inner, field)) is not None:
                return bits // 8 + within
        return None

    def _string(self, at: int) -> str:
        return self._strings[at : self._strings.index(b"\0", at)].decode()


def of_this_kernel() -> Btf:
    return Btf(Path("/sys/kernel/btf/vmlinux").read_bytes())
