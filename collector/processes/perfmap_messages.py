"""What the collector and its child that reads perf maps say to each other: bytes, as both are one version.

The child may be in the hands of whoever wrote a perf map, so its answers are checked.
"""

import json
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from collector.processes.jit_name import JitName
from collector.processes.perfmap_lines import MAX_LINE, PerfMapLines

MAX_LINES = 32_768
"""The most lines of one job."""
MAX_NAMES = 512
"""The most names of one job."""

_LINES, _NAMES = b"l", b"n"
_PART = struct.Struct("<QIIq")  # offset, most bytes, most lines, checksum
_HEAD = struct.Struct("<QIIq")  # bytes used, whether there is more, lines, checksum
_NO_CHECKSUM = -1
_LINE_BYTES = 8 + 8 + 4
_MAX_NAME_BYTES = 3 * MAX_LINE + 64
"""The character that replaces a byte that is not UTF-8 takes three bytes."""
MAX_ANSWER_BYTES = max(_HEAD.size + MAX_LINES * _LINE_BYTES, MAX_NAMES * (6 * MAX_LINE + 64))
"""A control character takes six bytes in JSON."""


class PerfMapAnswerError(ValueError):
    """It is no answer to the job."""


class LinesJob(NamedTuple):
    """A job: read the lines of a part of a perf map."""

    offset: int
    most_bytes: int
    most_lines: int
    checksum: int | None = 0  # of what is before the part; None: whatever is there

    def encode(self) -> bytes:
        return _LINES + _PART.pack(*self[:3], _NO_CHECKSUM if self.checksum is None else self.checksum)

    def decode_answer(self, data: bytes) -> PerfMapLines:
        """Raises PerfMapAnswerError."""
        if len(data) < _HEAD.size:
            raise PerfMapAnswerError("it has no head")
        used, more, count, checksum = _HEAD.unpack_from(data)
        if used > self.most_bytes or count > self.most_lines or len(data) != _HEAD.size + count * _LINE_BYTES:
            raise PerfMapAnswerError("it has more than what was asked for")
        start = np.frombuffer(data, "<u8", count, _HEAD.size)
        size = np.frombuffer(data, "<u8", count, _HEAD.size + 8 * count)
        offset = np.frombuffer(data, "<u4", count, _HEAD.size + 16 * count)
        if not ((size > 0) & (size < 1 << 32) & (start < (1 << 64) - (1 << 32)) & (offset < used)).all():
            raise PerfMapAnswerError("an area or a line is out of range")
        if not (0 <= checksum < 1 << 32 or (checksum == _NO_CHECKSUM and not used and self.offset)):
            raise PerfMapAnswerError("the checksum is out of range")
        return PerfMapLines(used, bool(more), start, size, offset, None if checksum == _NO_CHECKSUM else checksum)


class NamesJob(NamedTuple):
    """A job: read the names in at most MAX_NAMES lines, which are given by their offsets and an address in the area of
    each."""

    offsets: Sequence[int]
    addresses: Sequence[int]

    def encode(self) -> bytes:
        return _NAMES + np.array(self.offsets, "<u4").tobytes() + np.array(self.addresses, "<u8").tobytes()

    def decode_answer(self, data: bytes) -> list[JitName | None]:
        """Raises PerfMapAnswerError."""
        try:
            found = json.loads(data)
            if not isinstance(found, list) or len(found) != len(self.offsets):
                raise PerfMapAnswerError("it has not one name for each line")
            return [None if each is None else _checked(each) for each in found]
        except (ValueError, RecursionError) as error:
            raise PerfMapAnswerError(str(error)) from None


def decode_job(job: bytes) -> LinesJob | NamesJob:
    """Reads a job of the collector's."""
    if job[:1] == _LINES:
        offset, most_bytes, most_lines, checksum = _PART.unpack(job[1:])
        return LinesJob(offset, most_bytes, most_lines, None if checksum == _NO_CHECKSUM else checksum)
    count = (len(job) - 1) // 12
    offsets, addresses = np.frombuffer(job, "<u4", count, 1), np.frombuffer(job, "<u8", count, 1 + 4 * count)
    return NamesJob(offsets.tolist(), addresses.tolist())


def encode_lines(lines: PerfMapLines) -> bytes:
    checksum = _NO_CHECKSUM if lines.checksum is None else lines.checksum
    head = _HEAD.pack(lines.used, lines.more, len(lines.start), checksum)
    columns = lines.start.astype("<u8"), lines.size.astype("<u8"), lines.offset.astype("<u4")
    return head + b"".join(column.tobytes() for column in columns)


def encode_names(names: Sequence[JitName | None]) -> bytes:
    return json.dumps(names, ensure_ascii=False).encode()


def _checked(each: Any) -> JitName:
    """Raises ValueError where it is no name, or has characters that cannot be encoded."""
    match each:
        case [str(function), str(file), int(line)] if 0 <= line < 10**9:
            if len((function + file).encode()) <= _MAX_NAME_BYTES:
                return JitName(function, file, line)
    raise PerfMapAnswerError("it is no name")
