"""What an ELF file says of the CPython interpreter in it: where _PyRuntime lies, which version, which offsets.

By the symbols that a file exports (an interpreter's own executable, or libpython), so also where it is stripped; where
an executable that embeds CPython exports nothing, by the section .PyRuntime, since 3.13.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from collector.elf import Read
from collector.elf_sections import DYNSYM, NOBITS, Section, content, read_sections
from collector.python.layout import OFFSETS_BYTES, Layout, LayoutError, layout

_MAX_TABLE_BYTES = 64 << 20
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_RUNTIME, _VERSION, _CODE_TYPE, _DEBUG = b"_PyRuntime", b"Py_Version", b"PyCode_Type", b"_Py_NegativeRefcount"
_DEBUG_BUILD = "debug builds of CPython 3.11 and 3.12 have other offsets"


@dataclass(frozen=True)
class Interpreter:
    """`runtime` is the ELF virtual address of _PyRuntime."""

    runtime: int
    layout: Layout


def find_interpreter(source: Read) -> Interpreter | None:
    """The interpreter in a file; None where there is none. Raises LayoutError where its frames cannot be read, and
    OSError."""
    sections = read_sections(source)
    symbols = _exported(source, sections, (_RUNTIME, _VERSION, _CODE_TYPE, _DEBUG))
    own = next((section for section in sections if section.name == ".PyRuntime"), None)
    runtime = symbols.get(_RUNTIME, own.address if own else None)
    if runtime is None:
        return None
    start = _at(source, sections, runtime, OFFSETS_BYTES)
    version = _version(source, sections, symbols.get(_VERSION), start)
    if version < 0x030D0000 and _DEBUG in symbols:
        raise LayoutError(_DEBUG_BUILD)
    code_type = symbols[_CODE_TYPE] - runtime if _CODE_TYPE in symbols else 0
    return Interpreter(runtime, layout(version, code_type, start))


def _version(source: Read, sections: list[Section], at: int | None, runtime: bytes) -> int:
    """PY_VERSION_HEX."""
    data = _at(source, sections, at, 8) if at is not None else runtime[8:16] if runtime[:8] == b"xdebugpy" else b""
    if len(data) < 8:
        raise LayoutError("expected Py_Version: CPython before 3.11, or an interpreter that exports nothing")
    return int(struct.unpack("<Q", data)[0])


def _exported(source: Read, sections: list[Section], names: Iterable[bytes]) -> dict[bytes, int]:
    """Values of the dynamic symbols of these names that the file defines."""
    table = next((section for section in sections if section.kind == DYNSYM and section.size), None)
    if table is None or table.link >= len(sections):
        return {}
    strings = content(source, sections[table.link], _MAX_TABLE_BYTES)
    if b"\0" + _RUNTIME + b"\0" not in strings:  # in almost every file: it need not be looked at further
        return {}
    data = content(source, table, _MAX_TABLE_BYTES)
    rows = np.frombuffer(data, _SYMBOL, count=len(data) // _SYMBOL.itemsize)
    rows = rows[rows["section"] != 0]
    found = {}
    for name in names:
        at = rows["value"][rows["name"] == strings.find(b"\0" + name + b"\0") + 1] if name in strings else rows[:0]
        if len(at):
            found[name] = int(at[0])
    return found


def _at(source: Read, sections: list[Section], address: int, size: int) -> bytes:
    """Bytes of the file at an ELF virtual address; none where it holds none."""
    for section in sections:
        if section.address and section.kind != NOBITS and section.address <= address < section.end:
            return source(section.offset + address - section.address, min(size, section.end - address))
    return b""
