"""The files whose unwinding tables are wanted, in the order in which they are taken.

A small file is taken before larger ones that came earlier, because its processes may live for a moment only. Each file
has a time at which it is due: when it came, plus a time that grows with its code. So nothing waits for ever, however
many small files come.
"""

import queue
import time
from typing import NamedTuple

CODE_BYTES_PER_S = 100_000
"""A file with this much more code than another one is taken before it if it came a second earlier."""


class _Wanted(NamedTuple):
    due: float  # by time.monotonic; -inf for the end, which comes before all files
    file_key: str


class TableQueue:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self._wanted: queue.PriorityQueue[_Wanted] = queue.PriorityQueue()

    def put(self, file_key: str, code_bytes: int) -> None:
        """`code_bytes`: how much code of the file is mapped; this asks no file system, which may be slow."""
        self._wanted.put(_Wanted(time.monotonic() + code_bytes / CODE_BYTES_PER_S, file_key))

    def end(self) -> None:
        """Whoever takes files is to end, at once."""
        self._wanted.put(_Wanted(float("-inf"), ""))

    def pop(self, wait_s: float) -> str | None:
        """Returns the next file; None at the end. Raises queue.Empty where none came within that time."""
        return self._wanted.get(timeout=wait_s).file_key or None
