"""Names in stripped Go programs: functions, files and lines that the Go runtime keeps for its own stack traces.

Format: the section .gopclntab as of Go 1.18 (magic 0xfffffff0) and 1.20 (0xfffffff1) on 64 bit machines; described in
Go's src/runtime/symtab.go and src/internal/abi/symtab.go. What was inlined counts for the function around it, at the
line before it: whose code it is stands in a table that cannot be found without symbols.
"""

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from collector.elf import Read
from collector.elf_sections import Section, content, find, read_sections

MAX_BYTES = 256 << 20
MAX_FUNCTIONS = 1_000_000
MAX_STEPS = 8_000_000
"""Of all tables of lines together; functions past it have no lines."""

_NAMES = (".gopclntab", ".data.rel.ro.gopclntab")
_MAGIC = (0xFFFFFFF0, 0xFFFFFFF1)
_HEADER = struct.Struct("<I2xBB8Q")
_ENTRY = struct.Struct("<2I")
_FUNCTION = struct.Struct("<Ii12x2I4xI")  # entry, name, tables of files and lines, the compilation unit's files
_MAX_NAME = 4096
_BLANK = dict.fromkeys(range(32), " ")


class _Table(NamedTuple):
    """Places in `data`."""

    data: bytes
    functions_count: int
    names: int
    units: int
    files: int
    steps: int
    functions: int


def has_go_table(source: Read, sections: list[Section]) -> bool:
    """Whether a file has a table that names its code. Raises OSError."""
    return _find(source, sections) is not None


def go_breakpad(source: Read, base: int) -> bytes:
    """The Breakpad symbol file of a Go program; its addresses count from `base`. Empty where there is no table, or it
    cannot be read, or where it is not sure what its addresses count from. Raises OSError."""
    found = _find(source, read_sections(source))
    if found is None or found[1] < base:
        return b""
    table, start, size = found
    try:
        return _Writer(table, start - base, size).text()
    except (struct.error, IndexError):
        return b""


def _find(source: Read, sections: list[Section]) -> tuple[_Table, int, int] | None:
    """The table, what its addresses count from, and the bytes of code from there."""
    table = _read_table(content(source, _section(sections), MAX_BYTES))
    text = find(sections, ".text")
    if table is None or text is None:
        return None
    try:
        start = _text_start(table, text, int.from_bytes(source(24, 8), "little"))
    except struct.error:
        return None
    return None if start is None else (table, start, text.end - start)


def _section(sections: list[Section]) -> Section | None:
    return next((found for name in _NAMES if (found := find(sections, name)) is not None), None)


def _read_table(data: bytes) -> _Table | None:
    if len(data) < _HEADER.size:
        return None
    magic, step, word, count, _, _, *places = _HEADER.unpack_from(data)
    if magic not in _MAGIC or step != 1 or word != 8 or count > MAX_FUNCTIONS or max(places) > len(data):
        return None
    return _Table(data, count, *places)


def _text_start(table: _Table, text: Section, entry: int) -> int | None:
    """What addresses count from: the table says it up to Go 1.25; later it is the begin of .text, unless C code was
    linked before it, so that the program's entry must be where the table has it."""
    (said,) = struct.unpack_from("<Q", table.data, 24)
    if text.address <= said < text.end:
        return int(said)
    for i in range(table.functions_count):
        offset, place = _ENTRY.unpack_from(table.data, table.functions + i * _ENTRY.size)
        if text.address + offset == entry:
            _, name, *_ = _FUNCTION.unpack_from(table.data, table.functions + place)
            return text.address if _text(table.data, table.names + name).startswith("_rt0_") else None
    return None


class _Writer:
    """Writes the records of one table."""

    def __init__(self, table: _Table, start: int, size: int) -> None:
        self._table = table
        self._start = start
        self._size = size
        self._steps = 0
        self._files: dict[str, int] = {}
        self._records = bytearray()

    def text(self) -> bytes:
        """Raises struct.error and IndexError."""
        table = self._table
        for i in range(table.functions_count):
            begin, place, end = struct.unpack_from("<3I", table.data, table.functions + i * _ENTRY.size)
            if begin < end <= self._size:
                self._function(begin, end, place)
        if not self._records:
            return b""
        header = ["MODULE Linux x86_64 000000000000000000000000000000000 go"]
        header += [f"FILE {number} {name}" for name, number in self._files.items()]
        return _lines(header) + self._records

    def _function(self, begin: int, end: int, place: int) -> None:
        table = self._table
        _, name, files, lines, unit = _FUNCTION.unpack_from(table.data, table.functions + place)
        records = [f"FUNC {self._start + begin:x} {end - begin:x} 0 {_text(table.data, table.names + name)}"]
        in_file, at_line = self._rows(files, end - begin), self._rows(lines, end - begin)
        if in_file and at_line:
            records += self._line_records(begin, end, in_file, at_line, self._file(unit, in_file[0][1]))
        self._records += _lines(records)

    def _line_records(
        self, begin: int, end: int, in_file: list[tuple[int, int]], at_line: list[tuple[int, int]], number: int
    ) -> Iterator[str]:
        """Of the file that the function begins in. Others are those of inlined functions."""
        at = 0
        for (start, line), (stop, _) in pairwise([*at_line, (end - begin, 0)]):
            while at + 1 < len(in_file) and in_file[at + 1][0] <= start:
                at += 1
            if in_file[at][1] == in_file[0][1] and line > 0:
                yield f"{self._start + begin + start:x} {stop - start:x} {line} {number}"

    def _rows(self, offset: int, size: int) -> list[tuple[int, int]]:
        """(where it begins, value) of a table of values by address."""
        data, at = self._table.data, self._table.steps + offset
        rows: list[tuple[int, int]] = []
        value, address = -1, 0
        while offset and address < size and self._steps < MAX_STEPS:
            self._steps += 1
            delta, at = _varint(data, at)
            if delta == 0 and rows:
                break
            value += -(delta >> 1) - 1 if delta & 1 else delta >> 1
            rows.append((address, value))
            step, at = _varint(data, at)
            address += step
        return rows

    def _file(self, unit: int, index: int) -> int:
        (place,) = struct.unpack_from("<I", self._table.data, self._table.units + 4 * (unit + index))
        name = "" if place == 0xFFFFFFFF else _text(self._table.data, self._table.files + place)
        return self._files.setdefault(name, len(self._files))


def _lines(records: list[str]) -> bytes:
    return "\n".join([*records, ""]).encode("utf-8", "replace")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned LEB128 number of at most 32 bits, and what follows it."""
    value = shift = 0
    while shift < 35:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    return value, at


def _text(data: bytes, at: int) -> str:
    end = data.find(b"\0", at, at + _MAX_NAME) if at >= 0 else -1
    return data[at:end].decode("utf-8", "replace").translate(_BLANK) if end > at else "?"
