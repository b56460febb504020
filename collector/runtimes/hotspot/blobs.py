"""Reads what a blob of the code cache is: a compiled method (nmethod), or a piece of generated code with a name.

A compiled method has a sorted table of places (PcDesc: two ints, where in the code, and where its scope is described,
in rows of 16 bytes; code/pcDesc.hpp). The description of a scope (code/debugInfoRec.cpp) is compressed: the scope into
which it was inlined, which method it is of, and its bytecode + 1. Methods are numbered by a table of pointers.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from collector.runtimes.hotspot.layout import HotspotLayout, NameLayout
from collector.runtimes.hotspot.unsigned5 import read_number
from collector.runtimes.hotspot.vm_structs import Memory

COMPILED = (b"nmethod", b"native nmethod")
_MAX_PLACES_BYTES, _MAX_SCOPES_BYTES, _MAX_METADATA_BYTES = 1 << 18, 1 << 19, 1 << 16
_MAX_INLINED, _MAX_RECORDS = 128, 8192
_OVERHEAD_BYTES = 1024
_NAME_BYTES = 48
_POINTER = (1 << 48) - 1
_PLACE = np.dtype([("code", "<i4"), ("scope", "<i4"), ("rest", "<u8")])
NOWHERE = -1
"""In place of a bytecode: nobody knows which one."""


class Inlined(NamedTuple):
    """A scope: `method` is a Method, `bytecode` counts from its first one, which stands for its entry, too."""

    method: int
    bytecode: int


class Scopes(NamedTuple):
    """The tables of a compiled method as they were read."""

    places: bytes
    scopes: bytes
    metadata: bytes
    excluded: int

    def at(self, code: int) -> list[Inlined]:
        """The methods that are executed `code` bytes from the start of the code, innermost first; [] if nobody knows.

        Each place describes the code before it, from the place before on; a return address is a place, and `code` one
        byte before it."""
        places = self._places()
        row = int(np.searchsorted(places["code"], code, "right"))
        offset = int(places["scope"][row]) if row < len(places) else 0
        result: list[Inlined] = []
        while offset and len(result) < _MAX_INLINED:
            record = self._record(offset)
            if record is None:
                return []
            offset = record[0]
            result.append(record[1])
        return result

    def methods(self) -> set[int]:
        """All methods that are executed anywhere in it."""
        result: set[int] = set()
        seen: set[int] = {0}
        for offset in np.unique(self._places()["scope"]).tolist():
            while offset not in seen and len(seen) < _MAX_RECORDS:
                seen.add(offset)
                if record := self._record(offset):
                    offset = record[0]
                    result.add(record[1].method)
        return result

    @property
    def size(self) -> int:
        """Bytes, with what Python itself takes for what is kept with them: more than theirs if a method is small."""
        return _OVERHEAD_BYTES + len(self.places) + len(self.scopes) + len(self.metadata)

    def _places(self) -> np.ndarray:
        return np.frombuffer(self.places[: len(self.places) // 16 * 16], _PLACE)

    def _record(self, offset: int) -> tuple[int, Inlined] | None:
        """A scope, and the offset of the one into which it was inlined, which is always smaller; 0: none."""
        if offset < 0:
            return None
        try:
            sender, at = read_number(self.scopes, offset, self.excluded)
            method, at = read_number(self.scopes, at, self.excluded)
            bytecode, _ = read_number(self.scopes, at, self.excluded)
        except IndexError:
            return None
        if not 0 < method <= len(self.metadata) // 8 or sender >= offset:
            return None
        (pointer,) = struct.unpack_from("<Q", self.metadata, 8 * (method - 1))
        return sender, Inlined(pointer & _POINTER, max(bytecode - 1, 0))


@dataclass
class Blob:
    name: str  # "": it cannot be read
    check: int  # of a compiled method its compile ID, which no other one of the process has; else 0
    method: int  # Method; 0: it is not compiled
    has_scopes: bool  # whether it has tables, which may be dropped
    scopes: Scopes | None


def read_blobs(memory: Memory, layout: HotspotLayout, addresses: Iterable[int]) -> dict[int, Blob]:
    """Returns those of the blobs at these addresses that can be read, in three rounds."""
    wanted = list(addresses)
    heads = dict(zip(wanted, memory([(at, layout.names.nmethod_bytes) for at in wanted]), strict=True))
    known = {at: head for at, head in heads.items() if head is not None}
    named = memory([(_word(head, layout.walk.blob_name), _NAME_BYTES) for head in known.values()])
    result = {}
    areas: list[tuple[int, int]] = []
    for (at, head), data in zip(known.items(), named, strict=True):
        name = (data or b"").partition(b"\0")[0]
        compiled = name in COMPILED
        check = _int(head, layout.walk.nmethod_compile_id) & 0xFFFFFFFF if compiled else 0
        method = _word(head, layout.names.nmethod_method) & _POINTER if compiled else 0
        # Without a method: its class was unloaded.
        result[at] = Blob("" if compiled and not method else _readable(name), check, method, False, None)
        areas += _areas(layout.names, at, head) if name == COMPILED[0] else [(0, 0)] * 3
    tables = memory(areas) if any(size for _, size in areas) else [None] * len(areas)
    for blob, places, scopes, metadata in zip(result.values(), tables[::3], tables[1::3], tables[2::3], strict=True):
        if places and scopes and metadata:
            blob.has_scopes = True
            blob.scopes = Scopes(places, scopes, metadata, layout.names.excluded_zero)
    return result


def unloaded(memory: Memory, layout: HotspotLayout, blobs: Mapping[int, Blob]) -> set[int]:
    """Those of the compiled methods that are not there any more: since they were read, all they refer to may have been
    replaced."""
    walk = layout.walk
    compiled = [at for at, blob in blobs.items() if blob.method]
    data = memory([(at - walk.block_header, walk.block_header + layout.names.nmethod_bytes) for at in compiled])
    return {
        at
        for at, block in zip(compiled, data, strict=True)
        if not block
        or not block[walk.block_used]
        or _int(block, walk.block_header + walk.nmethod_compile_id) & 0xFFFFFFFF != blobs[at].check
        or _word(block, walk.block_header + layout.names.nmethod_method) & _POINTER != blobs[at].method
    }


def _readable(name: bytes) -> str:
    """The name of a piece of code, a literal of the JVM; "" for what is none."""
    text = name.decode("ascii", "replace")
    return text if text.isprintable() and text.isascii() else ""


def _areas(fields: NameLayout, at: int, head: bytes) -> list[tuple[int, int]]:
    """Where places, descriptions and metadata of a compiled method are; sizes of 0 if they are too large or wrong."""
    places = _int(head, fields.scopes_pcs)
    if fields.immutable_data:
        immutable, scopes = _word(head, fields.immutable_data), _int(head, fields.scopes_data)
        places_area = immutable + places, scopes - places
        scopes_area = immutable + scopes, _int(head, fields.immutable_size) - scopes
    else:  # metadata, descriptions, places and dependencies follow each other
        places_area = at + places, _int(head, fields.dependencies) - places
        scopes_start = _word(head, fields.scopes_data)
        scopes_area = scopes_start, at + places - scopes_start
    if fields.mutable_data:
        start = _int(head, fields.relocation_size)
        metadata_area = _word(head, fields.mutable_data) + start, _int(head, fields.mutable_size) - start
    elif fields.immutable_data:
        start = _int(head, fields.blob_data) + int.from_bytes(head[fields.metadata : fields.metadata + 2], "little")
        metadata_area = at + start, _MAX_METADATA_BYTES
    else:
        start = at + _int(head, fields.metadata)
        metadata_area = start, scopes_area[0] - start
    limits = _MAX_PLACES_BYTES, _MAX_SCOPES_BYTES, _MAX_METADATA_BYTES
    areas = [places_area, scopes_area, metadata_area]
    return [
        (start, size) if start >= 0 and 0 < size <= most else (0, 0)
        for (start, size), most in zip(areas, limits, strict=True)
    ]


def _word(head: bytes, at: int) -> int:
    return int(struct.unpack_from("<Q", head, at)[0])


def _int(head: bytes, at: int) -> int:
    return int(struct.unpack_from("<i", head, at)[0])
