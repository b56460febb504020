"""Reads the names and lines of methods from the memory of a JVM.

A Method leads to its ConstMethod, which has its bytecodes and lines, and to its ConstantPool, which has its names as
Symbols and leads to its class. Nothing read is trusted: sizes are limited, and what does not look like a name is none.
"""

import struct
import sys
from collections.abc import Iterable
from typing import NamedTuple

from collector.runtimes.hotspot import names
from collector.runtimes.hotspot.layout import HotspotLayout
from collector.runtimes.hotspot.unsigned5 import read_lines
from collector.runtimes.hotspot.vm_structs import Memory
from collector.runtimes.lines import CodeLines

MAX_NAME_BYTES = 1000
MAX_TABLE_BYTES = 1 << 16
_HASH = 0xFFFF0000
_HAS_LINES = 1  # in ConstMethod's flags
_POOL_ENTRY = (1 << 48) - 2  # the lowest bit is a mark


class Method:
    """What is known of one method. Its lines are decoded when they are first asked for."""

    __slots__ = ("_lines", "file", "function")

    def __init__(self, function: str, file: str, table: bytes, excluded: int) -> None:
        self.function, self.file = function, file
        self._lines: CodeLines | tuple[bytes, int] = table, excluded

    def line(self, bytecode: int) -> int:
        """The line of a bytecode, counted from the method's first one; 0 if nobody knows it."""
        if isinstance(self._lines, tuple):
            self._lines = read_lines(*self._lines)
        return self._lines.at(bytecode)


class MethodParts(NamedTuple):
    """What a Method leads to, and what tells it from others at its address."""

    const: int  # ConstMethod
    head: bytes  # of it
    pool: int  # ConstantPool
    class_: int  # Klass
    class_name: int  # a Symbol
    name: int  # a Symbol
    check: int


def find_parts(memory: Memory, layout: HotspotLayout, methods: Iterable[int]) -> dict[int, MethodParts]:
    """Method -> its parts, of those that can be read, in six rounds of reading."""
    walk = layout.walk
    consts = _pointers(memory, {at: at + walk.method_const for at in methods})
    heads = _read(memory, {at: (const, walk.const_size) for at, const in consts.items()})
    pools = {at: struct.unpack_from("<Q", head, walk.const_constants)[0] for at, head in heads.items()}
    entries = {at: struct.unpack_from("<H", head, walk.const_name)[0] for at, head in heads.items()}
    method_names = _pointers(memory, {at: pool + walk.pool_bytes + 8 * entries[at] for at, pool in pools.items()})
    classes = _pointers(memory, {at: pools[at] + walk.pool_holder for at in method_names})
    class_names = _pointers(memory, {at: class_ + walk.class_name for at, class_ in classes.items()})
    symbols = {at: (name, method_names[at] & _POOL_ENTRY) for at, name in class_names.items()}
    hashes = _read(memory, {each: (each + walk.symbol_hash, 4) for both in symbols.values() for each in both})
    return {
        at: MethodParts(consts[at], heads[at], pools[at], classes[at], *both, _check(consts[at], hashes, both))
        for at, both in symbols.items()
        if all(each in hashes for each in both)
    }


def _check(const: int, hashes: dict[int, bytes], symbols: Iterable[int]) -> int:
    """As the eBPF program does (check_of)."""
    check = const >> 3
    for each in symbols:
        check ^= each ^ int.from_bytes(hashes[each], "little") & _HASH
    return check & 0xFFFFFFFF


def read_methods(memory: Memory, layout: HotspotLayout, parts: dict[int, MethodParts]) -> dict[int, Method]:
    """Returns those of the methods that have names, in five rounds of reading."""
    walk, fields = layout.walk, layout.names
    tables: dict[int, tuple[int, int]] = {}
    for at, each in parts.items():
        (words,) = struct.unpack_from("<i", each.head, fields.const_bytes)
        (code_size,) = struct.unpack_from("<H", each.head, walk.const_code_size)
        start = walk.const_size + code_size
        if each.head[fields.const_flags] & _HAS_LINES and 8 * words > start:
            tables[at] = each.const + start, min(8 * words - start, MAX_TABLE_BYTES)
    sources = _sources(memory, layout, parts)
    lines = _read(memory, tables)
    symbols = {each.class_name for each in parts.values()} | {each.name for each in parts.values()}
    text = _symbols(memory, layout, symbols | set(sources.values()))
    result = {}
    for at, each in parts.items():
        try:
            class_ = text[each.class_name]
            function = names.method_name(class_, text[each.name])
        except (KeyError, ValueError):
            continue
        file = names.file_name(class_, text.get(sources.get(at, 0), ""))
        result[at] = Method(sys.intern(function), sys.intern(file), lines.get(at, b""), fields.excluded_zero)
    return result


def _sources(memory: Memory, layout: HotspotLayout, parts: dict[int, MethodParts]) -> dict[int, int]:
    """Method -> the Symbol with the name of its source file, if there is one."""
    fields, pool_bytes = layout.names, layout.walk.pool_bytes
    if fields.pool_source_file:
        index_at = {at: each.pool + fields.pool_source_file for at, each in parts.items()}
    else:
        index_at = {at: each.class_ + fields.class_source_file for at, each in parts.items()}
    indices = _read(memory, {at: (address, 2) for at, address in index_at.items()})
    source_at = {
        at: parts[at].pool + pool_bytes + 8 * index
        for at, data in indices.items()
        if (index := int.from_bytes(data, "little"))
    }
    return {at: source & _POOL_ENTRY for at, source in _pointers(memory, source_at).items()}


def _symbols(memory: Memory, layout: HotspotLayout, addresses: set[int]) -> dict[int, str]:
    fields = layout.names
    heads = _read(memory, {at: (at + fields.symbol_length, 2) for at in addresses})
    sizes = {at: min(int.from_bytes(data, "little"), MAX_NAME_BYTES) for at, data in heads.items()}
    bodies = _read(memory, {at: (at + fields.symbol_body, size) for at, size in sizes.items() if size})
    return {at: _decode(data) for at, data in bodies.items()}


def _decode(data: bytes) -> str:
    """Decodes modified UTF-8: characters beyond 16 bits are two surrogates, of three bytes each."""
    if data.isascii():
        return data.decode("ascii")
    text = data.decode("utf-8", "surrogatepass") if _is_utf8(data) else data.decode("utf-8", "replace")
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def _pointers(memory: Memory, addresses: dict[int, int]) -> dict[int, int]:
    """The words at these addresses that may be pointers."""
    found = {
        at: int.from_bytes(data, "little")
        for at, data in _read(memory, {k: (v, 8) for k, v in addresses.items()}).items()
    }
    return {at: word for at, word in found.items() if 0 < word < 1 << 48}


def _read(memory: Memory, areas: dict[int, tuple[int, int]]) -> dict[int, bytes]:
    """What can be read of these areas. Methods of a class share some, which are read once."""
    distinct = list(dict.fromkeys(areas.values()))
    data = dict(zip(distinct, memory(distinct), strict=True)) if distinct else {}
    return {at: found for at, area in areas.items() if (found := data[area]) is not None}
