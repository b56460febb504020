"""Reads names and lines of Python code from the memory of the process that executes it.

A process's memory is not trusted: sizes are limited, and anything may be missing.
"""

import codecs
import struct
import sys
from collections.abc import Iterable
from functools import partial

import numpy as np

from collector.processes import memory
from collector.runtimes.areas import read_areas
from collector.runtimes.cache import Key
from collector.runtimes.lines import CodeLines
from collector.runtimes.python.layout import PythonLayout, Text
from collector.runtimes.python.lines import MAX_TABLE_BYTES, LineFormat, parse_lines

MAX_NAME = 1000  # characters
_READ_AT_ONCE = 256
_CHECK = 0xFFFFFFFF
_VERSION_FACTOR = 0x9E3779  # CODE_VERSION_FACTOR in bpf/python_frames.h
_KIND, _COMPACT, _ASCII = 7, 8, 16  # in the state, from its kind on
_ENCODINGS = {size: codecs.lookup(name).name for size, name in ((1, "latin-1"), (2, "utf-16-le"), (4, "utf-32-le"))}
"""By bytes of a character. Python loads an encoding from disk when it is first looked up."""


class Code:
    """What is known of one code object. Its lines are parsed when they are first asked for: while code objects
    are read, before their processes end, there is no time for that."""

    __slots__ = ("_lines", "file", "function")

    def __init__(self, function: str, file: str, line_format: LineFormat, table: bytes, first_line: int) -> None:
        self.function, self.file = function, file
        self._lines: CodeLines | tuple[LineFormat, bytes, int] = line_format, table, first_line

    @property
    def lines(self) -> CodeLines:
        if isinstance(self._lines, tuple):
            self._lines = parse_lines(*self._lines)
        return self._lines


def read(pid: int, layout: PythonLayout, addresses: Iterable[int]) -> dict[Key, Code]:
    """Reads the code objects at these addresses; leaves out those that cannot be read."""
    wanted = np.array(sorted(set(addresses)), np.uint64)
    codes: dict[Key, Code] = {}
    for at in range(0, len(wanted), _READ_AT_ONCE):
        try:
            codes |= memory.patiently(pid, partial(_read, pid, layout.text, wanted[at : at + _READ_AT_ONCE]))
        except TimeoutError:  # the frames stay unnamed
            break
    return codes


def _read(pid: int, text: Text, addresses: np.ndarray) -> dict[Key, Code]:
    """Reads code objects in three rounds: objects, sizes, contents; skips those that cannot be read."""
    objects = read_areas(pid, addresses, np.full(len(addresses), text.code_bytecode))
    there = [i for i, data in enumerate(objects) if data is not None]
    if not there:
        return {}
    raw = b"".join(objects[i] or b"" for i in there)
    codes = np.frombuffer(raw, np.uint8).reshape(len(there), text.code_bytecode)
    first_line = _column(codes, text.code_line, np.int32)
    version = _column(codes, text.code_version, np.uint32) if text.code_version else np.zeros(len(there), np.uint32)
    pointers = np.concatenate(
        [_column(codes, at, np.uint64) for at in (text.code_name, text.code_file, text.code_lines)]
    )
    text_head, bytes_head = max(text.text_length + 8, text.text_state + 4), text.bytes_length + 8
    heads = read_areas(pid, pointers, np.repeat([text_head, text_head, bytes_head], len(there)))
    n = len(there)
    spans = [_text_span(text, head) for head in heads[: 2 * n]] + [_bytes_span(text, head) for head in heads[2 * n :]]
    starts, sizes = np.array([span[:2] for span in spans], np.uint64).T
    contents = read_areas(pid, pointers + starts, sizes)
    codes_read = {}
    for i in range(n):
        function = _decode(spans[i][2], contents[i])
        if function is None:
            continue
        file, table = _decode(spans[n + i][2], contents[n + i]) or "", contents[2 * n + i] or b""
        check = (int(first_line[i]) ^ int(pointers[i]) >> 4 ^ int(version[i]) * _VERSION_FACTOR) & _CHECK
        code = Code(sys.intern(function), sys.intern(file), text.line_format, table, int(first_line[i]))
        codes_read[Key(pid, int(addresses[there[i]]), check)] = code
    return codes_read


def _column(codes: np.ndarray, at: int, kind: type) -> np.ndarray:
    """Returns a field of each object."""
    return codes[:, at : at + np.dtype(kind).itemsize].copy().view(kind)[:, 0]


def _text_span(text: Text, head: bytes | None) -> tuple[int, int, int]:
    """Returns where the characters of a str are, their bytes, and the bytes of each; zeros if it cannot be read."""
    if head is None:
        return 0, 0, 0
    (length,) = struct.unpack_from("<q", head, text.text_length)
    (state,) = struct.unpack_from("<I", head, text.text_state)
    state >>= text.text_kind
    kind = state & _KIND
    if kind not in (1, 2, 4) or not state & _COMPACT or length <= 0:
        return 0, 0, 0
    return text.text_ascii if state & _ASCII else text.text_compact, min(length, MAX_NAME) * kind, kind


def _bytes_span(text: Text, head: bytes | None) -> tuple[int, int, int]:
    length = struct.unpack_from("<q", head, text.bytes_length)[0] if head is not None else 0
    return text.bytes_data, min(max(length, 0), MAX_TABLE_BYTES), 1


def _decode(kind: int, data: bytes | None) -> str | None:
    """Decodes characters of 1 (Latin-1), 2 or 4 bytes."""
    if data is None or not kind:
        return None
    return data.decode(_ENCODINGS[kind], "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
