"""Where a JVM has its code: up to four heaps, which it reserves when it starts and which never move.

A heap is cut into segments. Its segment map has a byte for each, which says how to get to the first segment of its
block (src/hotspot/share/memory/heap.hpp).
"""

import struct
from typing import NamedTuple

from collector.runtimes.hotspot.layout import HeapLayout
from collector.runtimes.hotspot.vm_structs import Memory, StructuresError

MOST_HEAPS = 4  # HOTSPOT_HEAPS in bpf/hotspot.h
_MAX_HEAP_BYTES = 2 << 30  # ReservedCodeCacheSize is at most that
_HEAP_BYTES = 512


class JvmNotReady(Exception):
    """The JVM has just started, and has no code yet."""


class CodeHeap(NamedTuple):
    low: int
    high: int
    segments: int  # address of its segment map


class CodeHeaps(NamedTuple):
    heaps: list[CodeHeap]
    shift: int  # a segment has 1 << shift bytes

    def pack(self) -> bytes:
        """The first part of struct hotspot_process in bpf/hotspot.h."""
        fields = [value for heap in self.heaps for value in heap]
        return struct.pack("=12QII", *fields, *[0] * (3 * MOST_HEAPS - len(fields)), self.shift, len(self.heaps))


NO_HEAPS = CodeHeaps([], 0)


def find_heaps(memory: Memory, layout: HeapLayout) -> CodeHeaps:
    """Raises StructuresError and JvmNotReady."""
    (array,) = struct.unpack("<Q", _read(memory, layout.heaps, 8))
    if not array:
        raise JvmNotReady
    head = _read(memory, array, max(layout.array_length + 4, layout.array_data + 8))
    (count,) = struct.unpack_from("<i", head, layout.array_length)
    (first,) = struct.unpack_from("<Q", head, layout.array_data)
    if count == 0:
        raise JvmNotReady
    if not 0 < count <= MOST_HEAPS:
        raise StructuresError(f"it has {count} code heaps, more than {MOST_HEAPS}")
    heaps, shifts = [], set()
    for (heap,) in struct.iter_unpack("<Q", _read(memory, first, 8 * count)):
        data = _read(memory, heap, _HEAP_BYTES)
        low, high, segments = (
            struct.unpack_from("<Q", data, at)[0]
            for at in (
                layout.heap_memory + layout.low,
                layout.heap_memory + layout.high,
                layout.heap_segments + layout.low,
            )
        )
        if not (low and segments):
            raise JvmNotReady
        if not low < high <= low + _MAX_HEAP_BYTES:
            raise StructuresError("its code heaps are no areas")
        shifts |= {struct.unpack_from("<i", data, layout.heap_shift)[0]}
        heaps.append(CodeHeap(low, high, segments))
    if len(shifts) != 1 or not shifts <= set(range(4, 17)):
        raise StructuresError("its code heaps have other segments")
    return CodeHeaps(heaps, shifts.pop())


def _read(memory: Memory, address: int, size: int) -> bytes:
    (data,) = memory([(address, size)])
    if data is None:
        raise StructuresError("its code heaps cannot be read")
    return data
