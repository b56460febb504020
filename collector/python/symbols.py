"""Finds the CPython interpreter in an ELF file: the address of _PyRuntime, the version, the offsets of its structures.

The symbols that a file exports tell it (an interpreter's own executable, or libpython), also if the file is stripped.
An executable that embeds CPython 3.13 or later and exports nothing has the section .PyRuntime.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from collector.elf import sections, symbols
from collector.elf.reader import Read
from collector.elf.sections import DYNSYM, Section
from collector.python.layout import COOKIE, OFFSETS_BYTES, Layout, LayoutError, layout

_RUNTIME, _VERSION, _CODE_TYPE, _DEBUG = b"_PyRuntime", b"Py_Version", b"PyCode_Type", b"_Py_NegativeRefcount"
_DEBUG_BUILD = "debug builds of CPython 3.11 and 3.12 have other offsets"


@dataclass(frozen=True)
class Interpreter:
    """`runtime` is the ELF virtual address of _PyRuntime."""

    runtime: int
    layout: Layout


def find_interpreter(source: Read) -> Interpreter | None:
    """Returns the interpreter in a file; None if there is none. Raises LayoutError if its frames cannot be read, and
    OSError."""
    table = sections.read_sections(source)
    exports = symbols.defined(source, table, DYNSYM, _RUNTIME, _VERSION, _CODE_TYPE, _DEBUG)
    own = next((section for section in table if section.name == ".PyRuntime"), None)
    runtime = exports.get(_RUNTIME, own.address if own else None)
    if runtime is None:
        return None
    start = sections.at(source, table, runtime, OFFSETS_BYTES)
    version = _version(source, table, exports.get(_VERSION), start)
    if version < 0x030D0000 and _DEBUG in exports:
        raise LayoutError(_DEBUG_BUILD)
    code_type = exports[_CODE_TYPE] - runtime if _CODE_TYPE in exports else 0
    return Interpreter(runtime, layout(version, code_type, start))


def _version(source: Read, table: Sequence[Section], address: int | None, runtime: bytes) -> int:
    """PY_VERSION_HEX, from Py_Version at `address` or from the start of _PyRuntime."""
    if address is not None:
        data = sections.at(source, table, address, 8)
    else:
        data = runtime[8:16] if runtime[:8] == COOKIE else b""
    if len(data) < 8:
        raise LayoutError("expected Py_Version: CPython before 3.11, or an interpreter that exports nothing")
    return int(struct.unpack("<Q", data)[0])
