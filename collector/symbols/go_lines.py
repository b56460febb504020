"""Functions, files and lines of stripped Go programs, by the table that the Go runtime keeps for its stack traces.

Inlined code counts for the function around it, at the line before it: the table that says whose code it is cannot be
found without symbols.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from collector.elf import gopclntab
from collector.elf.gopclntab import GoTable, text
from collector.elf.reader import Read
from collector.elf.sections import Section, content, find, read_sections

MAX_BYTES = 256 << 20
MAX_STEPS = 8_000_000
"""Of all tables of lines together; functions past it have no lines."""

_FUNCTION = struct.Struct("<Ii12x2I4xI")  # entry, name, tables of files and lines, the compilation unit's files
_NO_FILE = 0xFFFFFFFF


def has_go_table(source: Read, sections: Sequence[Section]) -> bool:
    """Whether a file has a table that names its code. Raises OSError."""
    return _find(source, sections) is not None


def go_breakpad(source: Read, base: int) -> bytes:
    """Returns the Breakpad symbol file of a Go program, with addresses that count from `base`; b"" if there is no
    table, it cannot be read, or it is not certain what its addresses count from. Raises OSError."""
    go_program = _find(source, read_sections(source))
    if go_program is None or go_program[1] < base:
        return b""
    table, start, size = go_program
    try:
        return _Writer(table, start - base, size).text()
    except (struct.error, IndexError):
        return b""


def _find(source: Read, sections: Sequence[Section]) -> tuple[GoTable, int, int] | None:
    """The table, what its addresses count from, and the bytes of code from there."""
    table = gopclntab.read_table(content(source, gopclntab.section(sections), MAX_BYTES))
    code = find(sections, ".text")
    if table is None or code is None:
        return None
    try:
        start = _text_start(table, code, int.from_bytes(source(24, 8), "little"))
    except struct.error:
        return None
    return None if start is None else (table, start, code.end - start)


def _text_start(table: GoTable, code: Section, entry: int) -> int | None:
    """What addresses count from. Up to Go 1.25 the table says it. Later it is the begin of .text unless C code was
    linked before it, so the program's entry must be where the table has it."""
    if code.address <= table.text_start < code.end:
        return table.text_start
    if not 0 <= entry - code.address < 1 << 32:
        return None
    for row in np.flatnonzero(table.start == entry - code.address)[:1].tolist():
        _, name, *_ = _FUNCTION.unpack_from(table.data, int(table.record[row]))
        return code.address if text(table.data, table.names + name).startswith("_rt0_") else None
    return None


class _Writer:
    """Writes the records of one table."""

    def __init__(self, table: GoTable, start: int, size: int) -> None:
        self._table = table
        self._start = start
        self._size = size
        self._steps = 0
        self._files: dict[str, int] = {}
        self._records = bytearray()

    def text(self) -> bytes:
        """Raises struct.error and IndexError."""
        table = self._table
        for begin, end, record in zip(table.start.tolist(), table.end.tolist(), table.record.tolist(), strict=True):
            if begin < end <= self._size:
                self._function(begin, end, record)
        if not self._records:
            return b""
        header = ["MODULE Linux x86_64 000000000000000000000000000000000 go"]
        header += [f"FILE {number} {name}" for name, number in self._files.items()]
        return _lines(header) + self._records

    def _function(self, begin: int, end: int, record: int) -> None:
        table = self._table
        _, name, files, lines, unit = _FUNCTION.unpack_from(table.data, record)
        records = [f"FUNC {self._start + begin:x} {end - begin:x} 0 {text(table.data, table.names + name)}"]
        in_file, at_line = self._rows(files, end - begin), self._rows(lines, end - begin)
        if in_file and at_line:
            records += self._line_records(begin, end, in_file, at_line, self._file(unit, in_file[0][1]))
        self._records += _lines(records)

    def _line_records(
        self, begin: int, end: int, in_file: list[tuple[int, int]], at_line: list[tuple[int, int]], number: int
    ) -> Iterator[str]:
        """The lines of the file that the function begins in. Lines of other files belong to inlined functions."""
        row = 0
        for (start, line), (stop, _) in pairwise([*at_line, (end - begin, 0)]):
            while row + 1 < len(in_file) and in_file[row + 1][0] <= start:
                row += 1
            if in_file[row][1] == in_file[0][1] and line > 0:
                yield f"{self._start + begin + start:x} {stop - start:x} {line} {number}"

    def _rows(self, offset: int, size: int) -> list[tuple[int, int]]:
        """Decodes a table of values by address: (first address, value)."""
        data, position = self._table.data, self._table.steps + offset
        rows: list[tuple[int, int]] = []
        value, address = -1, 0
        while offset and address < size and self._steps < MAX_STEPS:
            self._steps += 1
            delta, position = _varint(data, position)
            if delta == 0 and rows:
                break
            value += -(delta >> 1) - 1 if delta & 1 else delta >> 1
            rows.append((address, value))
            step, position = _varint(data, position)
            address += step
        return rows

    def _file(self, unit: int, index: int) -> int:
        (offset,) = struct.unpack_from("<I", self._table.data, self._table.units + 4 * (unit + index))
        name = "" if offset == _NO_FILE else text(self._table.data, self._table.files + offset)
        return self._files.setdefault(name, len(self._files))


def _lines(records: list[str]) -> bytes:
    return "\n".join([*records, ""]).encode("utf-8", "replace")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """An unsigned LEB128 number of at most 32 bits, and the position behind it."""
    value = shift = 0
    while shift < 35:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    return value, position
