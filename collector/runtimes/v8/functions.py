"""Reads names and places of JavaScript functions from the memory of the process that executes them.

A function is its SharedFunctionInfo, which all closures of it have in common. Collections move it seldom: it is an old
object. It is identified by process, address and check (bpf/v8.h): another one may lie at the same address later.
"""

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from collector.runtimes.lines import CodeLines, code_lines
from collector.runtimes.v8.heap import Heap, Words, is_pointer
from collector.runtimes.v8.layout import V8Layout, V8Text
from collector.runtimes.v8.positions import MAX_TABLE_BYTES, read_positions
from collector.runtimes.v8.scripts import Script, Scripts

UNNAMED = "(anonymous)"
NO_LINES = CodeLines((), ())
_BYTECODE = 8  # SharedFunctionInfo: what it executes
_SCRIPT_ID = 64  # V8_SCRIPT_ID in bpf/v8_frames.h
_ID_FACTOR = 0x9E3779B1  # V8_ID_FACTOR in bpf/v8.h
_MAX_LOCALS = 1 << 16
_HASHED_FROM = 75  # so many locals are in a hash table (kScopeInfoMaxInlinedLocalNamesSize)
_LOCALS, _AFTER_LOCALS = 3, 4  # words of a ScopeInfo: the number of locals, and what follows it
_SLOTS = 8  # so many words are read behind the locals
_SAVED_CLASS, _RECEIVER, _NAME, _INFERRED = 10, 7, 12, 14  # bits of its flags
_IN_STACK_OR_CONTEXT = (1, 2)


class JsFunction(NamedTuple):
    """`file` is empty where there is none: a builtin. `line` is the function's first one, 0 if it is not known."""

    name: str
    file: str
    line: int


class FoundFunction(NamedTuple):
    check: int
    function: JsFunction
    lines: CodeLines  # by offset in its bytecodes
    table: int  # CRC-32 of their positions: no other function has such ones; 0: there are none
    script: Script | None


class _Scope(NamedTuple):
    """What a ScopeInfo has: strings, where the function begins (-1: unknown)."""

    name: int
    inferred: int
    start: int


def read_functions(
    pid: int, heap: Heap, layout: V8Layout, scripts: Scripts, addresses: Sequence[int]
) -> list[FoundFunction | None]:
    """Returns the function at each address; None where there is none."""
    found = _read(pid, heap, layout, scripts, addresses)
    # A young source may have been moved while it was looked for.
    again = [i for i, each in enumerate(found) if each and each.script and not len(each.script.ends)]
    if again:
        for i, each in zip(again, _read(pid, heap, layout, scripts, [addresses[i] for i in again]), strict=True):
            found[i] = each or found[i]
    return found


def check(layout: V8Layout, data: bytes, script_id: int) -> int:
    """Returns 32 bits of what stays the same in a SharedFunctionInfo, as the eBPF program does (take_v8_function)."""
    (numbers,) = struct.unpack_from("<Q", data, layout.walk.shared_flags - 8)
    (number,) = struct.unpack_from("<I", data, layout.walk.shared_id)
    numbers &= (1 << 48) - 1
    return int(numbers ^ numbers >> 32 ^ (number ^ script_id << 16) * _ID_FACTOR) & 0xFFFFFFFF


def _read(
    pid: int, heap: Heap, layout: V8Layout, scripts: Scripts, addresses: Sequence[int]
) -> list[FoundFunction | None]:
    walk, text = layout.walk, layout.text
    size = walk.shared_id + 4
    objects = heap.areas([(address, size) for address in addresses])
    maps = [struct.unpack_from("<Q", data)[0] if data is not None else 0 for data in objects]
    found = {
        address: data
        for address, data, kind in zip(addresses, objects, heap.types_of(maps), strict=True)
        if data is not None and kind == walk.shared_type
    }
    names = [struct.unpack_from("<Q", data, text.shared_name)[0] for data in found.values()]
    script_pointers = [struct.unpack_from("<Q", data, text.shared_script)[0] for data in found.values()]
    with_ids = script_pointers if walk.shared_script else [0] * len(found)
    script_ids = [word[0] >> 32 if word else 0 for word in heap.words(with_ids, _SCRIPT_ID, 1)]
    known_scripts = scripts.read(pid, heap, text, script_pointers)
    scopes = _read_scopes(heap, text, names)
    strings = heap.texts([string for scope in scopes for string in (scope[:2] if scope else (0, 0))])
    tables = _read_tables(heap, layout, [struct.unpack_from("<Q", data, _BYTECODE)[0] for data in found.values()])
    functions = {}
    for (address, data), script_id, scope, script, name, inferred, table in zip(
        found.items(),
        script_ids,
        scopes,
        map(known_scripts.get, script_pointers),
        strings[::2],
        strings[1::2],
        tables,
        strict=True,
    ):
        if scope is None:
            continue
        line = script.line(scope.start) if script else 0
        function = JsFunction(name or inferred or UNNAMED, script.name if script else "", line)
        lines = _lines(table, layout, script) if script and table else NO_LINES
        functions[address] = FoundFunction(
            check(layout, data, script_id), function, lines, zlib.crc32(table or b""), script
        )
    return [functions.get(address) for address in addresses]


def _read_tables(heap: Heap, layout: V8Layout, data: Sequence[int]) -> list[bytes | None]:
    """Returns the table of positions of the bytecodes of each function. `data`: its BytecodeArray, or what leads to it:
    code that Sparkplug made, or data of the interpreter."""
    behind = [words or (0, 0, 0) for words in heap.words(data, 0, 3)]
    candidates = [pointer for own, words in zip(data, behind, strict=True) for pointer in (own, *words[1:])]
    kinds = heap.types(candidates)
    of: list[int] = [0] * len(data)
    for i in (i for i, kind in enumerate(kinds) if kind == layout.walk.bytecode_type):
        of[i // 3] = of[i // 3] or candidates[i]
    return bytecode_positions(heap, layout, of)


def bytecode_positions(heap: Heap, layout: V8Layout, bytecodes: Sequence[int]) -> list[bytes | None]:
    """Returns the table of positions of each BytecodeArray."""
    pointers = [words[0] if words else 0 for words in heap.words(bytecodes, layout.tables.bytecode_positions, 1)]
    return heap.arrays(pointers, layout.tables.byte_types, 1, MAX_TABLE_BYTES)


def _lines(table: bytes, layout: V8Layout, script: Script) -> CodeLines:
    positions = read_positions(table, layout.tables.position_flags)
    return code_lines(np.maximum(positions.offset, 0), script.lines(positions.character))


def _read_scopes(heap: Heap, text: V8Text, objects: Sequence[int]) -> list[_Scope | None]:
    """Reads what functions have as their names: strings, or ScopeInfos."""
    heads = heap.words(objects, 0, 2)
    types = heap.types_of([head[0] if head else 0 for head in heads])
    scopes = {i: objects[i] for i, kind in enumerate(types) if kind == text.scope_type}
    after = _AFTER_LOCALS + (2 if text.positions_first else 0)
    starts = heap.words(list(scopes.values()), 0, after + 1)
    wanted = []
    for pointer, words in zip(scopes.values(), starts, strict=True):
        count = words[_LOCALS] >> 32 if words else 0
        hashed = text.hashed_locals and count >= _HASHED_FROM
        at = after + (1 + count if hashed else 2 * count)
        wanted.append((pointer, 8 * at, _SLOTS) if words and count <= _MAX_LOCALS else (0, 0, 0))
    slots = heap.words_at(wanted)
    result: list[_Scope | None] = [_Scope(pointer, 0, -1) for pointer in objects]
    for i, words, named in zip(scopes, starts, slots, strict=True):
        result[i] = _scope(text, words, named) if words and named else None
    return result


def _scope(text: V8Text, words: Words, slots: Words) -> _Scope | None:
    """What follows the locals of a ScopeInfo: names, and up to 12.8 the positions. None: it is another structure."""
    flags, at = words[1] if text.positions_first else words[1] >> 32, 0
    if not flags >> _NAME & 3:
        return None
    at += flags >> _SAVED_CLASS & 1
    at += not text.hashed_locals and flags >> _RECEIVER & 3 in _IN_STACK_OR_CONTEXT
    name, inferred = slots[at], 0
    at += 2
    if flags >> _INFERRED & 1:
        inferred = slots[at]
        at += 1
    start, end = words[_AFTER_LOCALS : _AFTER_LOCALS + 2] if text.positions_first else slots[at : at + 2]
    if (start | end) & 0xFFFFFFFF or start > end or end >> 63 or (name & 1 and not is_pointer(name)):
        return None
    return _Scope(name, inferred, start >> 32)
