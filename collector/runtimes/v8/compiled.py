"""Code that V8's compilers made: which functions an address in it executes, and in which lines.

Sparkplug's code has a table with the address of each bytecode of its function
(src/baseline/bytecode-offset-iterator.h). That of Maglev and TurboFan has a table of positions, and says of each call
that was inlined which function it called, and where (src/objects/deoptimization-data.h). Not every instruction has a
position: then it has the one before it.

No table leads from an address to the code there. But a header lies before code, which leads to an object that has the
address of the code. The function of a frame must be that of the code.
"""

import struct
import zlib
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from collector.processes.jit_name import JitName
from collector.runtimes.lines import CodeLines, code_lines
from collector.runtimes.v8.functions import FoundFunction, bytecode_positions, read_functions
from collector.runtimes.v8.heap import Heap
from collector.runtimes.v8.layout import V8Layout
from collector.runtimes.v8.positions import MAX_TABLE_BYTES, Positions, read_numbers, read_positions, split
from collector.runtimes.v8.scripts import Scripts

_ADDRESS = (1 << 31) - 1
_MOST_CODE_BYTES = 1 << 20
_WINDOWS = 4 << 10, 64 << 10, _MOST_CODE_BYTES  # so many bytes before an address are looked at
_CANDIDATES = 256
_ALIGNMENT = 32  # of code
_BYTECODE_BEGIN = b"\x49\xbc"  # mov r12, constant: Sparkplug's code begins with its BytecodeArray (Node 16 to 18)
_BEGIN_BYTES = 32
_SCALES = {0: 1, 1: 2, 2: 1, 3: 2}  # of bytecodes whose operands are Wide or ExtraWide, also with a break point
_MOST_INLINED, _CALL_BYTES = 1024, 16
_WRAPPED = 8  # SharedFunctionInfoWrapper: the function


class CompiledCode(NamedTuple):
    start: int
    size: int
    shared: int  # the address of its function; 0: Sparkplug's
    table: int  # Sparkplug's: FoundFunction.table
    at: CodeLines  # by offset: the bytecode's offset (Sparkplug), or 1 + row of `functions`
    functions: tuple[tuple[JitName, ...], ...]  # innermost first

    def find(self, address: int, function: FoundFunction, shared: int) -> tuple[JitName, ...]:
        """Returns the functions at an address, whose lowest 31 bits count; none if this is not code of the function.
        `shared`: its address."""
        offset = address - self.start & _ADDRESS
        if offset >= self.size:
            return ()
        where = self.at.at(offset)
        if self.shared:
            return self.functions[where - 1] if where and self.shared == shared else ()
        line = function.lines.at(where) if self.table == function.table else 0
        return (JitName(*function.function._replace(line=line)),) if line else ()

    def overlaps(self, other: "CompiledCode") -> bool:
        return self.start < other.start + other.size and other.start < self.start + self.size


def read_compiled(
    pid: int, heap: Heap, layout: V8Layout, sizes: bytes, scripts: Scripts, addresses: Iterable[tuple[int, int]]
) -> list[CompiledCode]:
    """Returns the code at addresses, each with the start of its mapping. `sizes`: of bytecodes (Engine)."""
    found: list[CompiledCode] = []
    for start, address in sorted(addresses):
        if not (found and found[-1].start <= address < found[-1].start + found[-1].size):
            head = _find(heap, layout, start, address)
            code = _read(pid, heap, layout, sizes, scripts, head) if head else None
            found += [code] if code else []
    return found


class _Head(NamedTuple):
    start: int
    size: int
    positions: int
    deoptimization: int


def _find(heap: Heap, layout: V8Layout, mapping_start: int, address: int) -> _Head | None:
    """Looks for the header of the code at an address, backwards."""
    tables, end = layout.tables, (address & -8) + 16
    for size in _WINDOWS:
        start = max(mapping_start, end - 16 - size)
        (data,) = heap.areas([(start, end - start)])
        if data is None:
            return None
        words = np.frombuffer(data, np.uint64)
        pointers = (words & np.uint64(3) == 1) & (words > 4096) & (words < 1 << 47)
        rows = np.flatnonzero(pointers[:-1] & pointers[1:])
        rows = rows[(start + 8 * rows + tables.stream_bytes) % _ALIGNMENT == 0][: -_CANDIDATES - 1 : -1]
        kinds = heap.types_of(words[rows].tolist())
        for row in (row for row, kind in zip(rows.tolist(), kinds, strict=True) if kind == tables.stream_type):
            stream = start + 8 * row
            code = int(words[row + 1]) if tables.code_start else stream + 1
            if (head := _head(heap, layout, code, stream + tables.stream_bytes)) is not None:
                return head if head.start <= address < head.start + head.size else None
        if start == mapping_start:
            break
    return None


def _head(heap: Heap, layout: V8Layout, code: int, start: int) -> _Head | None:
    """The Code of the instructions that start there; None if it is none."""
    tables = layout.tables
    (data,) = heap.areas([(code - 1, max(tables.code_size + 4, tables.code_positions + 8))])
    if data is None or heap.types_of([_word(data, 0)]) != [tables.code_type]:
        return None
    size = _word(data, tables.code_size - 4) >> 32
    if (tables.code_start and _word(data, tables.code_start) != start) or not 0 < size <= _MOST_CODE_BYTES:
        return None
    return _Head(start, size, _word(data, tables.code_positions), _word(data, tables.code_deoptimization))


def _read(pid: int, heap: Heap, layout: V8Layout, sizes: bytes, scripts: Scripts, head: _Head) -> CompiledCode | None:
    (table,) = heap.arrays([head.positions], layout.tables.byte_types, 1, MAX_TABLE_BYTES)
    if table is None:
        return None
    bytecode = _bytecode(heap, layout, head)
    if bytecode:
        return _sparkplug(heap, layout, sizes, head, table, bytecode)
    return _optimized(pid, heap, layout, scripts, head, table)


def _bytecode(heap: Heap, layout: V8Layout, head: _Head) -> int:
    """The BytecodeArray of code that Sparkplug made; 0: another compiler did."""
    (begin,) = heap.areas([(head.start, _BEGIN_BYTES)])
    at = (begin or b"").find(_BYTECODE_BEGIN) + len(_BYTECODE_BEGIN)
    constant = _word(begin, at) if begin and 1 < at <= _BEGIN_BYTES - 8 else 0
    candidates = [head.deoptimization, constant]
    kinds = heap.types(candidates)
    return next((each for each, kind in zip(candidates, kinds, strict=True) if kind == layout.walk.bytecode_type), 0)


def _sparkplug(
    heap: Heap, layout: V8Layout, sizes: bytes, head: _Head, table: bytes, bytecode: int
) -> CompiledCode | None:
    ends = np.cumsum(read_numbers(table))
    (length,) = heap.words([bytecode], 8, 1)
    size = length[0] >> 32 if length else 0
    (code,) = heap.areas([(bytecode - 1 + layout.tables.bytecodes, size)] if 0 < size <= MAX_TABLE_BYTES else [(0, 0)])
    (positions,) = bytecode_positions(heap, layout, [bytecode])
    if not code or not positions:
        return None
    starts = _bytecodes(code, sizes, len(ends))
    at = CodeLines(array("I", (ends[: len(starts)] & 0xFFFFFFFF).tolist()), starts)
    return CompiledCode(head.start, head.size, 0, zlib.crc32(positions), at, ())


def _bytecodes(code: bytes, sizes: bytes, most: int) -> list[int]:
    """Returns the offsets of the first bytecodes. `sizes`: Engine.bytecode_sizes."""
    starts, at, count = list[int](), 0, len(sizes) // 3
    while at < len(code) and len(starts) < most and count:
        starts.append(at)
        scale = _SCALES.get(code[at], 0)
        number = code[at + 1] if scale and at + 1 < len(code) else code[at]
        if number >= count:
            break
        at += (scale > 0) + max(sizes[scale * count + number], 1)
    return starts


def _optimized(
    pid: int, heap: Heap, layout: V8Layout, scripts: Scripts, head: _Head, table: bytes
) -> CompiledCode | None:
    tables = layout.tables
    (data,) = heap.arrays([head.deoptimization], tables.word_types, 8, MAX_TABLE_BYTES)
    if data is None or len(data) < 8 * (tables.calls + 1):
        return None
    count, own = _word(data, 8 * tables.inlined) >> 32, _word(data, 8 * tables.shared)
    if count > _MOST_INLINED:
        return None
    if heap.types([own]) != [layout.walk.shared_type]:
        own = ((heap.words([own], _WRAPPED, 1)[0]) or (0,))[0]
    (literals,) = heap.arrays([_word(data, 8 * tables.literals)], tables.word_types, 8, MAX_TABLE_BYTES)
    (calls,) = heap.arrays([_word(data, 8 * tables.calls)], tables.byte_types, 1, MAX_TABLE_BYTES)
    pointers = [own, *struct.unpack_from(f"<{count}Q", (literals or b"").ljust(8 * count, b"\0"))]
    # Some literals are weak: then bit 1 is set.
    functions = read_functions(pid, heap, layout, scripts, [(pointer & -4) for pointer in pointers])
    if functions[0] is None:
        return None
    where, chains = _inlined(read_positions(table, tables.position_flags), functions, calls or b"")
    return CompiledCode(head.start, head.size, own - 1, 0, where, chains)


def _inlined(
    positions: Positions, functions: Sequence[FoundFunction | None], calls: bytes
) -> tuple[CodeLines, tuple[tuple[JitName, ...], ...]]:
    """What CompiledCode has of code with these positions. `functions`: its own, and those that were inlined; `calls`:
    the position of each call that was inlined, and the number of the function."""
    call = np.frombuffer(calls[: len(calls) // _CALL_BYTES * _CALL_BYTES], np.int64).reshape(-1, 2)
    number = call[:, 1].astype(np.int32).astype(np.int64) + 1
    function = np.append(0, np.where((number > 0) & (number < len(functions)), number, 0))
    by = split(np.arange(len(call)), call[:, 0])
    outer = np.append(0, np.where(by.inlining <= by.offset, by.inlining, 0))  # calls lie behind those around them
    inlining = np.where(positions.inlining < len(function), positions.inlining, 0)
    call_line = np.append(0, _lines(functions, function[outer[1:]], by.character))
    lines = _lines(functions, function[inlining], positions.character)
    distinct, row = np.unique(inlining << 32 | lines, return_inverse=True)
    chains = []
    for at in distinct.tolist():
        call_number, line, chain = at >> 32, at & 0xFFFFFFFF, []
        while True:
            found = functions[function[call_number]]
            if found is not None:
                chain.append(JitName(found.function.name, found.function.file, line or found.function.line))
            if not call_number:
                break
            line, call_number = int(call_line[call_number]), int(outer[call_number])
        chains.append(tuple(chain))
    return code_lines(np.clip(positions.offset, 0, _MOST_CODE_BYTES), row.reshape(-1) + 1), tuple(chains)


def _lines(functions: Sequence[FoundFunction | None], function: np.ndarray, character: np.ndarray) -> np.ndarray:
    """The line of each character of the script of a function: int64; 0 if it is not known."""
    lines = np.zeros(len(character), np.int64)
    for number in np.unique(function).tolist():
        found, of = functions[number], function == number
        if found is not None and found.script is not None:
            lines[of] = found.script.lines(character[of])
    return np.clip(lines, 0, 0xFFFFFFFF)


def _word(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<Q", data, at)[0])
