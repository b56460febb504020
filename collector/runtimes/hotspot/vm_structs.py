"""The tables in which a HotSpot JVM describes its own structures to debuggers: where fields are, and how large types.

libjvm.so exports where each table is, and where the columns of its rows are (src/hotspot/share/runtime/vmStructs.hpp).
The rows have pointers, so they are read from the memory of a process that runs. That process may have written anything
there, so what is read is used for this process only.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from collector.elf import dynamic, file
from collector.elf.dynamic import Dynamic
from collector.elf.error import ElfError
from collector.elf.reader import file_reader

Memory = Callable[[Sequence[tuple[int, int]]], list[bytes | None]]
"""Returns the bytes of each area (address, size) of a process; None for one that cannot be read."""

_STRUCTS, _TYPES = "gHotSpotVMStructs", "gHotSpotVMTypes"
_STRUCT_COLUMNS = ("TypeName", "FieldName", "IsStatic", "Offset", "Address")
_TYPE_COLUMNS = ("TypeName", "Size")
_NAMES = [
    *(_STRUCTS, "gHotSpotVMStructEntryArrayStride", *(f"gHotSpotVMStructEntry{at}Offset" for at in _STRUCT_COLUMNS)),
    *(_TYPES, "gHotSpotVMTypeEntryArrayStride", *(f"gHotSpotVMTypeEntry{at}Offset" for at in _TYPE_COLUMNS)),
]
_MAX_ROWS = 8192  # JDK 11 has 2,010
_MAX_STRIDE = 128
_ROWS_AT_ONCE = 1024
_NAME_BYTES = 64
_MAX_NAMES_BYTES = 1 << 20
_PAGE = 4096


class StructuresError(ValueError):
    """The frames of this JVM cannot be walked; the message says why."""


class VmStructs(NamedTuple):
    fields: dict[str, int]  # "Type.field" -> offset in bytes
    statics: dict[str, int]  # "Type.field" -> address in the process
    sizes: dict[str, int]  # type -> bytes


def find_tables(descriptor: int) -> dict[str, int] | None:
    """Returns the ELF virtual addresses of what a libjvm.so exports about its tables; None if it exports none. Raises
    OSError."""
    try:
        elf = file.parse(file_reader(descriptor))
        linked = Dynamic(elf, dict(dynamic.entries(elf))) if elf.header.is_64 else None
        found = {name: linked.find(name.encode()) for name in _NAMES} if linked else {}
    except (ElfError, struct.error):
        return None
    addresses = {name: symbol.value for name, symbol in found.items() if symbol is not None}
    return addresses if len(addresses) == len(_NAMES) else None


def read_tables(memory: Memory, address_of: dict[str, int]) -> VmStructs:
    """`address_of`: the addresses in this process of what find_tables has found. Raises StructuresError."""
    values = dict(zip(_NAMES, _words(memory, [address_of[name] for name in _NAMES]), strict=True))
    structs = _rows(memory, values, _STRUCTS, "gHotSpotVMStructEntry", _STRUCT_COLUMNS)
    types = _rows(memory, values, _TYPES, "gHotSpotVMTypeEntry", _TYPE_COLUMNS)
    text = _texts(memory, [row[0] for row in types] + [at for row in structs for at in row[:2]])
    result = VmStructs({}, {}, {text[name]: size for name, size in types})
    for kind, name, is_static, offset, address in structs:
        if is_static & 0xFFFFFFFF:
            result.statics[f"{text[kind]}.{text[name]}"] = address
        else:
            result.fields[f"{text[kind]}.{text[name]}"] = offset
    return result


def _words(memory: Memory, addresses: Iterable[int]) -> list[int]:
    data = memory([(address, 8) for address in addresses])
    if None in data:
        raise StructuresError("its tables cannot be read")
    return [word for (word,) in struct.iter_unpack("<Q", b"".join(filter(None, data)))]


def _rows(memory: Memory, values: dict[str, int], table: str, entry: str, columns: tuple[str, ...]) -> list[list[int]]:
    """The columns of each row, as words."""
    start, stride = values[table], values[f"{entry}ArrayStride"]
    offsets = [values[f"{entry}{column}Offset"] for column in columns]
    if not 0 < stride <= _MAX_STRIDE or max(offsets) + 8 > stride:
        raise StructuresError("its tables have another form")
    result: list[list[int]] = []
    for first in range(0, _MAX_ROWS, _ROWS_AT_ONCE):
        data = _up_to(memory, start + first * stride, _ROWS_AT_ONCE * stride)
        rows = np.frombuffer(data[: len(data) // stride * stride], np.uint8).reshape(-1, stride)
        words = np.column_stack([rows[:, at : at + 8].copy().view("<u8") for at in offsets])
        behind = np.flatnonzero(words[:, 0] == 0)
        result += words[: behind[0] if len(behind) else None].tolist()
        if len(behind):
            return result
        if len(data) < _ROWS_AT_ONCE * stride:
            break
    raise StructuresError("its tables do not end")


def _up_to(memory: Memory, start: int, size: int) -> bytes:
    """The bytes from an address on, up to the first page that cannot be read."""
    end, cuts = start + size, range(-(-(start + 1) // _PAGE) * _PAGE, start + size, _PAGE)
    bounds = [start, *cuts, end]
    data = b""
    for part in memory([(at, until - at) for at, until in pairwise(bounds)]):
        if part is None:
            break
        data += part
    return data


def _texts(memory: Memory, addresses: Iterable[int]) -> dict[int, str]:
    """The strings at these addresses, which lie close together in libjvm.so."""
    wanted = set(addresses)
    low, high = min(wanted - {0}, default=0), max(wanted, default=0) + _NAME_BYTES
    if high - low > _MAX_NAMES_BYTES:
        raise StructuresError("the names in its tables lie anywhere")
    data = _up_to(memory, low, high - low)
    return {
        at: data[at - low : at - low + _NAME_BYTES].partition(b"\0")[0].decode("ascii", "replace") if at else ""
        for at in wanted
    }
