"""Symbol tables of an ELF file: .symtab, .dynsym (System V gABI, elf(5))."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from collector.elf.reader import Read
from collector.elf.sections import Section, content

MAX_TABLE_BYTES = 256 << 20
MAX_NAME_BYTES = 8192
GLOBAL, WEAK = 1, 2

_SYMBOL_64 = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_SYMBOL_32 = np.dtype(
    [("name", "<u4"), ("value", "<u4"), ("size", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2")]
)
_UNTYPED, _FUNCTION, _IFUNC = 0, 2, 10
_UNDERSCORE = ord("_")
_PART_BYTES, _PART_ROWS = 1 << 20, 1 << 15


class ElfFunctions(NamedTuple):
    """Functions of one symbol table: uint64 starts and sizes, bindings, offsets of names in `names`."""

    start: np.ndarray
    size: np.ndarray
    binding: np.ndarray
    name: np.ndarray
    names: bytes


def read_functions(read: Read, sections: Sequence[Section], kind: int) -> ElfFunctions | None:
    """Returns the functions that the symbol table of that kind (SYMTAB, DYNSYM) defines; None if it has none. Symbols
    without a type, but with a size, are parts of functions that compilers put elsewhere (LLVM's basic block sections);
    in other sections than those with code, they may be anything. Raises OSError."""
    section = _section(sections, kind)
    if section is None:
        return None
    rows = _rows(read, section)
    kind_of = rows["info"] & 15
    functions = np.isin(kind_of, (_FUNCTION, _IFUNC)) | ((kind_of == _UNTYPED) & (rows["size"] > 0))
    rows = rows[functions & (rows["section"] != 0) & (rows["name"] != 0)]
    if not len(rows):
        return None
    names = content(read, sections[section.link], MAX_TABLE_BYTES)
    return ElfFunctions(
        rows["value"].astype(np.uint64), rows["size"].astype(np.uint64), rows["info"] >> 4, rows["name"], names
    )


def has_functions(read: Read, sections: Sequence[Section], kind: int) -> bool:
    """Whether the symbol table of that kind defines a function. Raises OSError."""
    return read_functions(read, sections, kind) is not None


def defined(read: Read, sections: Sequence[Section], kind: int, name: bytes, most_bytes: int) -> int | None:
    """Returns the value of the symbol of that name that the symbol table of that kind (SYMTAB, DYNSYM) defines; None if
    there is none, or the table or its names are larger than `most_bytes`. Raises OSError."""
    section = _section(sections, kind)
    if section is None or max(section.size, sections[section.link].size) > most_bytes:
        return None
    offset = _find(read, sections[section.link], b"\0" + name + b"\0") + 1
    layout = _layout(read)
    for at in range(0, section.size if offset else 0, _PART_ROWS * layout.itemsize):
        data = read(section.offset + at, min(_PART_ROWS * layout.itemsize, section.size - at))
        rows = np.frombuffer(data, layout, len(data) // layout.itemsize)
        values = rows["value"][(rows["name"] == offset) & (rows["section"] != 0)]
        if len(values):
            return int(values[0])
    return None


def measure(names: bytes, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the bytes (int64) of the names at some offsets, without their versions, as in memcpyGLIBC_2.14, and how
    many underscores each begins with. What has no end within MAX_NAME_BYTES has no bytes."""
    length, underscores = np.zeros(len(offset), np.int64), np.zeros(len(offset), np.int64)
    for part in range(0, len(offset), _PART_ROWS):
        for row, at in enumerate(offset[part : part + _PART_ROWS].tolist(), part):
            end = names.find(b"\0", at, at + MAX_NAME_BYTES)
            if end > at:
                version = names.find(b"@", at, end)
                length[row] = (version if version >= 0 else end) - at
                if names[at] == _UNDERSCORE:
                    name = names[at : at + length[row]]
                    underscores[row] = len(name) - len(name.lstrip(b"_"))
    return length, underscores


def _section(sections: Sequence[Section], kind: int) -> Section | None:
    """The symbol table of that kind, if it says where its names are."""
    section = next((section for section in sections if section.kind == kind and section.size), None)
    return section if section is not None and section.link < len(sections) else None


def _rows(read: Read, section: Section) -> np.ndarray:
    data, layout = content(read, section, MAX_TABLE_BYTES), _layout(read)
    return np.frombuffer(data, layout, count=len(data) // layout.itemsize)


def _layout(read: Read) -> np.dtype:
    return _SYMBOL_64 if read(4, 1) == b"\x02" else _SYMBOL_32


def _find(read: Read, section: Section, wanted: bytes) -> int:
    """Where the bytes are in a section; -1 if they are not there. Raises OSError."""
    for at in range(0, section.size, _PART_BYTES):
        data = read(section.offset + at, min(_PART_BYTES + len(wanted) - 1, section.size - at))
        if (offset := data.find(wanted)) >= 0:
            return at + offset
    return -1
