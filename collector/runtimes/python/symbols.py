"""Finds the CPython interpreter in an ELF file: the address of _PyRuntime, the version, the offsets of its structures.

The symbols that a file exports tell it (an interpreter's own executable, or libpython), also if the file is stripped.
An executable that embeds CPython 3.13 or later and exports nothing has the section .PyRuntime. Up to 3.10 no symbol has
the version: functions that a version brought tell it. 3.6 does not export where its interpreters are: the code of the
function that returns the first one tells it.
"""

import re
import struct
from dataclasses import dataclass, replace

from collector.elf import dynamic, file
from collector.elf.code_parts import code_parts
from collector.elf.dynamic import Dynamic, Symbol
from collector.elf.error import ElfError
from collector.elf.file import ElfFile
from collector.elf.reader import Read
from collector.runtimes.python.layout import COOKIE, OFFSETS_BYTES, LayoutError, PythonLayout, layout

_RUNTIME, _VERSION, _CODE_TYPE, _DEBUG = b"_PyRuntime", b"Py_Version", b"PyCode_Type", b"_Py_NegativeRefcount"
_LOOP = b"_PyEval_EvalFrameDefault"  # since 3.6
_FIRST_INTERPRETER = b"PyInterpreterState_Head"
_BROUGHT = {10: b"PyIter_Send", 9: b"PyFrame_GetCode", 8: b"PyCode_NewWithPosOnlyArgs", 7: _RUNTIME, 6: _LOOP}
_LOAD = re.compile(rb"(?:\xf3\x0f\x1e\xfa)?\x48\x8b\x05(.{4})\xc3", re.DOTALL)
"""`mov *rel32(%rip), %rax; ret`, after an `endbr64` (Intel's manual, volume 2)."""
_DEBUG_BUILD = "debug builds of CPython up to 3.12 have other offsets"


@dataclass(frozen=True)
class Interpreter:
    """`runtime` is the ELF virtual address of _PyRuntime, in 3.6 of the variable with the first interpreter. `loop` are
    those of the code that executes bytecode, one or two [start, end); none since 3.11, where the walk needs none."""

    runtime: int
    layout: PythonLayout
    loop: tuple[tuple[int, int], ...] = ()


def find_interpreter(source: Read) -> Interpreter | None:
    """Returns the interpreter in a file; None if there is none. Raises LayoutError if its frames cannot be read, and
    OSError."""
    try:
        elf = file.parse(source)
        exports = _exports(elf)
        own = None if _RUNTIME in exports else next((part for part in elf.sections if part.name == ".PyRuntime"), None)
        runtime = own.address if own else _runtime(elf, exports)
        if runtime is None:
            return None
        start = elf.at(runtime, OFFSETS_BYTES)
        version = _version(elf, exports, start)
        if version < 0x030D0000 and _DEBUG in exports:
            raise LayoutError(_DEBUG_BUILD)
        code_type = exports[_CODE_TYPE].value - runtime if _CODE_TYPE in exports else 0
        found = Interpreter(runtime, layout(version, code_type, start))
        loop = () if found.layout.walk.frame_owner else tuple(code_parts(elf, exports[_LOOP]))
    except (ElfError, struct.error):
        return None
    return replace(found, loop=loop)


def _exports(elf: ElfFile) -> dict[bytes, Symbol]:
    """Those of our symbols that a file exports; none of a file without an interpreter. Raises OSError, struct.error.

    They are found by the hash table, because a library may export a hundred thousand."""
    linked = Dynamic(elf, dict(dynamic.entries(elf))) if elf.header.is_64 else None
    if linked is None or not (linked.find(_RUNTIME) or linked.find(_LOOP)):
        return {}
    names = {_RUNTIME, _VERSION, _CODE_TYPE, _DEBUG, _FIRST_INTERPRETER, *_BROUGHT.values()}
    return {name: symbol for name in names if (symbol := linked.find(name)) is not None}


def _runtime(elf: ElfFile, exports: dict[bytes, Symbol]) -> int | None:
    """Where the interpreters are found (Interpreter.runtime). Raises OSError, LayoutError."""
    if _RUNTIME in exports or not exports:
        return exports[_RUNTIME].value if exports else None
    first = exports.get(_FIRST_INTERPRETER)
    load = _LOAD.match(elf.at(first.value, 12)) if first else None
    if first is None or load is None:
        raise LayoutError("CPython 3.6 whose PyInterpreterState_Head does not tell where its interpreters are")
    return first.value + load.end() - 1 + int.from_bytes(load[1], "little", signed=True)


def _version(elf: ElfFile, exports: dict[bytes, Symbol], runtime: bytes) -> int:
    """PY_VERSION_HEX, from Py_Version or from the start of _PyRuntime; up to 3.10 only the minor version is right."""
    published = runtime[8:16] if runtime[:8] == COOKIE else b""
    data = elf.at(exports[_VERSION].value, 8) if _VERSION in exports else published
    if len(data) == 8:
        return int(struct.unpack("<Q", data)[0])
    if _LOOP not in exports:
        raise LayoutError("expected Py_Version: an interpreter that exports nothing")
    minor = next(minor for minor, name in _BROUGHT.items() if name in exports)
    return 3 << 24 | minor << 16 | 0xF0
