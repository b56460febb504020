"""Bounded reads of a file that is open or in memory."""

import os
from collections.abc import Callable

MAX_OFFSET = 1 << 62
"""Offsets and addresses from here on are not believed; sums below it fit into int64."""

Read = Callable[[int, int], bytes]
"""(offset, size) -> at most `size` bytes from there, fewer only at the end of the file. Raises OSError."""


def file_reader(descriptor: int) -> Read:
    """Returns what reads an open file."""
    return lambda offset, size: _read(descriptor, offset, size)


def bytes_reader(data: bytes) -> Read:
    """Returns what reads a file that is in memory."""
    return lambda offset, size: data[offset : offset + size]


def _read(descriptor: int, offset: int, size: int) -> bytes:
    if not 0 <= offset < MAX_OFFSET or size <= 0:
        return b""
    data = os.pread(descriptor, size, offset)
    while data and len(data) < size and (more := os.pread(descriptor, size - len(data), offset + len(data))):
        data += more
    return data
