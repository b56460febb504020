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
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from collector.processes.jit_name import JitName
from collector.runtimes.lines import CodeLines, code_lines
from collector.runtimes.v8.functions import FoundFunction, JsFunction, bytecode_positions, read_functions
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


class CodeHead(NamedTuple):
    """Where code is, and the objects with its tables: other code has others."""

    start: int
    size: int
    positions: int
    deoptimization: int


class CompiledCode(NamedTuple):
    head: CodeHead
    own: JsFunction | None  # None: Sparkplug's
    check: int  # of its function, which collections may move; Sparkplug's: FoundFunction.table
    at: CodeLines  # by offset: the bytecode's offset (Sparkplug), or 1 + row of `functions`
    functions: tuple[tuple[JitName, ...], ...]  # innermost first

    def find(self, address: int, function: FoundFunction) -> tuple[JitName, ...]:
        """Returns the functions at an address, whose lowest 31 bits count; none if this is not code of the function."""
        offset = address - self.head.start & _ADDRESS
        if offset >= self.head.size:
            return ()
        where = self.at.at(offset)
        if self.own is not None:
            right = self.own == function.function and self.check == function.check
            return self.functions[where - 1] if where and right else ()
        line = function.lines.at(where) if self.check == function.table else 0
        return (JitName(*function.function._replace(line=line)),) if line else ()

    def overlaps(self, other: "CompiledCode") -> bool:
        own, others = self.head, other.head
        return own.start < others.start + others.size and others.start < own.start + own.size


def read_compiled(
    pid: int,
    heap: Heap,
    layout: V8Layout,
    sizes: bytes,
    scripts: Scripts,
    addresses: Sequence[tuple[int, int]],
    known: Collection[CodeHead] = (),
) -> list[CompiledCode]:
    """Returns the code at addresses, each with the start of its mapping; not that which is known. `sizes`:
    Engine.bytecode_sizes."""
    heads = [head for head in dict.fromkeys(_find(heap, layout, addresses)) if head not in known]
    tables = heap.arrays([head.positions for head in heads], layout.tables.byte_types, 1, MAX_TABLE_BYTES)
    read = [(head, table) for head, table in zip(heads, tables, strict=True) if table]
    bytecodes = _bytecode_arrays(heap, layout, [head for head, _ in read])
    sparkplug = [(*each, bytecode) for each, bytecode in zip(read, bytecodes, strict=True) if bytecode]
    optimized = [each for each, bytecode in zip(read, bytecodes, strict=True) if not bytecode]
    return _sparkplug(heap, layout, sizes, sparkplug) + _optimized(pid, heap, layout, scripts, optimized)


def _find(heap: Heap, layout: V8Layout, addresses: Sequence[tuple[int, int]]) -> list[CodeHead]:
    """Looks for the headers of the code at addresses, backwards."""
    found, left = list[CodeHead](), list(addresses)
    for size in _WINDOWS:
        at_once, further = max(_MOST_CODE_BYTES // size, 1), list[tuple[int, int]]()
        for first in range(0, len(left), at_once):
            part = left[first : first + at_once]
            starts = [max(mapping_start, (address & -8) - size) for mapping_start, address in part]
            spans = [(start, (each[1] & -8) + 16 - start) for start, each in zip(starts, part, strict=True)]
            streams = [
                _stream(heap, layout, start, data) if data else None
                for start, data in zip(starts, heap.areas(spans), strict=True)
            ]
            heads = _heads(heap, layout, [stream or (0, 0) for stream in streams])
            for each, start, stream, head in zip(part, starts, streams, heads, strict=True):
                if head and head.start <= each[1] < head.start + head.size:
                    found.append(head)
                elif stream is None and start > each[0]:
                    further.append(each)
        left = further
    return found


def _stream(heap: Heap, layout: V8Layout, start: int, data: bytes) -> tuple[int, int] | None:
    """The last header in what lies at an address: (its Code, where its instructions are)."""
    tables, words = layout.tables, np.frombuffer(data, np.uint64)
    pointers = (words & np.uint64(3) == 1) & (words > 4096) & (words < 1 << 47)
    rows = np.flatnonzero(pointers[:-1] & pointers[1:])
    rows = rows[(start + 8 * rows + tables.stream_bytes) % _ALIGNMENT == 0][: -_CANDIDATES - 1 : -1]
    kinds = heap.types_of(words[rows].tolist())
    row = next((row for row, kind in zip(rows.tolist(), kinds, strict=True) if kind == tables.stream_type), None)
    if row is None:
        return None
    stream = start + 8 * row
    return int(words[row + 1]) if tables.code_start else stream + 1, stream + tables.stream_bytes


def _heads(heap: Heap, layout: V8Layout, streams: Sequence[tuple[int, int]]) -> list[CodeHead | None]:
    """The Code of each header; None if it is none."""
    tables = layout.tables
    bytes_of = max(tables.code_size + 4, tables.code_positions + 8)
    objects = heap.areas([(code - 1, bytes_of) if code else (0, 0) for code, _ in streams])
    kinds = heap.types_of([_word(data, 0) if data else 0 for data in objects])
    found: list[CodeHead | None] = []
    for (_, start), data, kind in zip(streams, objects, kinds, strict=True):
        size = _word(data, tables.code_size - 4) >> 32 if data else 0
        right = data and kind == tables.code_type and 0 < size <= _MOST_CODE_BYTES
        if data and right and (not tables.code_start or _word(data, tables.code_start) == start):
            positions, deoptimization = _word(data, tables.code_positions), _word(data, tables.code_deoptimization)
            found.append(CodeHead(start, size, positions, deoptimization))
        else:
            found.append(None)
    return found


def _bytecode_arrays(heap: Heap, layout: V8Layout, heads: Sequence[CodeHead]) -> list[int]:
    """The BytecodeArray of each code that Sparkplug made; 0: another compiler did."""
    candidates = []
    for head, begin in zip(heads, heap.areas([(head.start, _BEGIN_BYTES) for head in heads]), strict=True):
        at = (begin or b"").find(_BYTECODE_BEGIN) + len(_BYTECODE_BEGIN)
        candidates += [head.deoptimization, _word(begin, at) if begin and 1 < at <= _BEGIN_BYTES - 8 else 0]
    right = [kind == layout.walk.bytecode_type for kind in heap.types(candidates)]
    return [
        candidates[i] if right[i] else candidates[i + 1] if right[i + 1] else 0 for i in range(0, len(candidates), 2)
    ]


def _sparkplug(
    heap: Heap, layout: V8Layout, sizes: bytes, codes: Sequence[tuple[CodeHead, bytes, int]]
) -> list[CompiledCode]:
    arrays = [bytecode for _, _, bytecode in codes]
    lengths = [words[0] >> 32 if words else 0 for words in heap.words(arrays, 8, 1)]
    bytecodes = heap.areas(
        [
            (array - 1 + layout.tables.bytecodes, length) if 0 < length <= MAX_TABLE_BYTES else (0, 0)
            for array, length in zip(arrays, lengths, strict=True)
        ]
    )
    found = []
    for (head, table, _), code, positions in zip(
        codes, bytecodes, bytecode_positions(heap, layout, arrays), strict=True
    ):
        if code and positions:
            ends = np.cumsum(read_numbers(table))
            starts = _bytecodes(code, sizes, len(ends))
            at = CodeLines(array("I", (ends[: len(starts)] & 0xFFFFFFFF).tolist()), array("I", starts))
            found.append(CompiledCode(head, None, zlib.crc32(positions), at, ()))
    return found


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
    pid: int, heap: Heap, layout: V8Layout, scripts: Scripts, codes: Sequence[tuple[CodeHead, bytes]]
) -> list[CompiledCode]:
    tables, least = layout.tables, 8 * (layout.tables.calls + 1)
    arrays = heap.arrays([head.deoptimization for head, _ in codes], tables.word_types, 8, MAX_TABLE_BYTES)
    data = [each if each and len(each) >= least else bytes(least) for each in arrays]
    literals = heap.arrays([_word(each, 8 * tables.literals) for each in data], tables.word_types, 8, MAX_TABLE_BYTES)
    calls = heap.arrays([_word(each, 8 * tables.calls) for each in data], tables.byte_types, 1, MAX_TABLE_BYTES)
    owns = [_word(each, 8 * tables.shared) for each in data]
    wrapped = [words[0] if words else 0 for words in heap.words(owns, _WRAPPED, 1)]
    kinds = heap.types(owns)
    pointers: list[list[int]] = []
    for each, own, behind, kind, words in zip(data, owns, wrapped, kinds, literals, strict=True):
        count = min(_word(each, 8 * tables.inlined) >> 32, _MOST_INLINED)
        # Some literals are weak: then bit 1 is set.
        inlined = [word & -4 for (word,) in struct.iter_unpack("<Q", (words or b"")[: 8 * count])]
        pointers.append([(own if kind == layout.walk.shared_type else behind) & -4, *inlined])
    distinct = list({pointer for each in pointers for pointer in each})
    functions = dict(zip(distinct, read_functions(pid, heap, layout, scripts, distinct), strict=True))
    found = []
    for (head, table), shared, call in zip(codes, pointers, calls, strict=True):
        if (function := functions[shared[0]]) is not None:
            positions = read_positions(table, tables.position_flags)
            where, chains = _inlined(positions, [functions[pointer] for pointer in shared], call or b"")
            found.append(CompiledCode(head, function.function, function.check, where, chains))
    return found


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
