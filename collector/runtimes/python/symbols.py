"""Finds the CPython interpreter in an ELF file: the address of _PyRuntime, the version, the offsets of its structures.

The symbols that a file exports tell it (an interpreter's own executable, or libpython), also if the file is stripped.
An executable that embeds CPython 3.13 or later and exports nothing has the section .PyRuntime.
"""

import struct
from dataclasses import dataclass

from collector.elf import dynamic, file
from collector.elf.dynamic import Dynamic
from collector.elf.error import ElfError
from collector.elf.file import ElfFile
from collector.elf.reader import Read
from collector.runtimes.python.layout import COOKIE, OFFSETS_BYTES, LayoutError, PythonLayout, layout

_RUNTIME, _VERSION, _CODE_TYPE, _DEBUG = b"_PyRuntime", b"Py_Version", b"PyCode_Type", b"_Py_NegativeRefcount"
_DEBUG_BUILD = "debug builds of CPython 3.11 and 3.12 have other offsets"


@dataclass(frozen=True)
class Interpreter:
    """`runtime` is the ELF virtual address of _PyRuntime."""

    runtime: int
    layout: PythonLayout


def find_interpreter(source: Read) -> Interpreter | None:
    """Returns the interpreter in a file; None if there is none. Raises LayoutError if its frames cannot be read, and
    OSError."""
    try:
        elf = file.parse(source)
        exports = _exports(elf)
    except (ElfError, struct.error):
        return None
    own = None if _RUNTIME in exports else next((part for part in elf.sections if part.name == ".PyRuntime"), None)
    runtime = exports.get(_RUNTIME, own.address if own else None)
    if runtime is None:
        return None
    start = elf.at(runtime, OFFSETS_BYTES)
    version = _version(elf, exports.get(_VERSION), start)
    if version < 0x030D0000 and _DEBUG in exports:
        raise LayoutError(_DEBUG_BUILD)
    code_type = exports[_CODE_TYPE] - runtime if _CODE_TYPE in exports else 0
    return Interpreter(runtime, layout(version, code_type, start))


def _exports(elf: ElfFile) -> dict[bytes, int]:
    """The addresses of those of our symbols that a file exports; none without _PyRuntime. Raises OSError, struct.error.

    They are found by the hash table, because a library may export a hundred thousand."""
    linked = Dynamic(elf, dict(dynamic.entries(elf))) if elf.header.is_64 else None
    if linked is None or linked.find(_RUNTIME) is None:
        return {}
    found = {name: linked.find(name) for name in (_RUNTIME, _VERSION, _CODE_TYPE, _DEBUG)}
    return {name: symbol.value for name, symbol in found.items() if symbol is not None}


def _version(elf: ElfFile, address: int | None, runtime: bytes) -> int:
    """PY_VERSION_HEX, from Py_Version at `address` or from the start of _PyRuntime."""
    published = runtime[8:16] if runtime[:8] == COOKIE else b""
    data = elf.at(address, 8) if address is not None else published
    if len(data) < 8:
        raise LayoutError("expected Py_Version: CPython before 3.11, or an interpreter that exports nothing")
    return int(struct.unpack("<Q", data)[0])
