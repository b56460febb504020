"""Names of code that was compiled at run time: /tmp/perf-PID.map, as perf reads it.

Format (tools/perf/Documentation/jit-interface.txt in Linux): a line an area, `START SIZE NAME`, start and size in
hexadecimal. The process appends as it compiles; where areas begin at the same address, the last one is right. The file
belongs to the process and may hold anything: only new bytes are read, at most MAX_BYTES of one file.
"""

import os
import re
import stat
from typing import NamedTuple

import numpy as np

MAX_BYTES = 32 << 20
MAX_AREAS = 200_000
_MAX_NAME = 1000
_LINE = re.compile(
    rb"^(?:0x)?([0-9a-fA-F]{1,16})[ \t]+(?:0x)?([0-9a-fA-F]{1,16})[ \t]+([^\n]*[^\s])[ \t\r]*$", re.MULTILINE
)


class Name(NamedTuple):
    function: str
    file: str
    line: int = 0  # 0: not known


class PerfMap:
    """The areas of one process; `refresh` reads what was appended."""

    def __init__(self, pid: int, root: str = "/proc") -> None:
        self._process = f"{root}/{pid}"
        self._offset = 0
        self._inode = 0
        self._rest = b""
        self._forget()

    def refresh(self) -> None:
        """Reads what is new. A file that is missing, was replaced or is not the process's own starts from nothing."""
        try:
            data = self._read_new()
        except OSError:
            return
        head, newline, self._rest = (self._rest + data).rpartition(b"\n")
        if len(self._rest) > 2 * _MAX_NAME:
            self._rest = b""  # no line of ours is that long
        found = [(int(start, 16), int(size, 16), name) for start, size, name in _LINE.findall(head + newline)]
        if found:
            self._add(found)

    def lookup(self, addresses: np.ndarray) -> np.ndarray:
        """Rows in `names` (int64) of addresses (uint64); -1 where no area covers them."""
        if not len(self._starts):
            return np.full(len(addresses), -1, np.int64)
        at = np.searchsorted(self._starts, addresses, side="right") - 1
        return np.where((at >= 0) & (addresses - self._starts[at] < self._sizes[at]), self._rows[at], -1)

    def _forget(self) -> None:
        self.names: list[Name] = []
        self._starts = np.empty(0, np.uint64)
        self._sizes = np.empty(0, np.uint64)
        self._rows = np.empty(0, np.int64)

    def _read_new(self) -> bytes:
        path = f"{self._process}/root/tmp/perf-{_inner_pid(self._process)}.map"
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid not in (0, os.stat(self._process).st_uid):
                return b""
            if status.st_ino != self._inode or status.st_size < self._offset:
                self._inode, self._offset, self._rest = status.st_ino, 0, b""
                self._forget()
            data = os.pread(descriptor, max(0, MAX_BYTES - self._offset), self._offset)
            self._offset += len(data)
            return data
        finally:
            os.close(descriptor)

    def _add(self, found: list[tuple[int, int, bytes]]) -> None:
        found = found[: MAX_AREAS - len(self.names)]
        rows = len(self.names) + np.arange(len(found))
        self.names += [_name(name.decode("utf-8", "replace")[:_MAX_NAME]) for _, _, name in found]
        starts = np.concatenate([self._starts, np.array([start for start, _, _ in found], np.uint64)])
        sizes = np.concatenate([self._sizes, np.array([size for _, size, _ in found], np.uint64)])
        # The last of equal starts: the first in reverse order, which is what np.unique points at.
        self._starts, first = np.unique(starts[::-1], return_index=True)
        self._sizes, self._rows = sizes[::-1][first], np.concatenate([self._rows, rows])[::-1][first]


def _name(text: str) -> Name:
    """CPython's trampolines are called `py::FUNCTION:FILE` (python -X perf)."""
    if text.startswith("py::"):
        function, _, file = text[4:].partition(":")
        return Name(function, file)
    return Name(text, "")


def _inner_pid(process: str) -> str:
    """The process ID in its own namespace: the last of NSpid in /proc/PID/status."""
    with open(f"{process}/status", encoding="utf-8", errors="replace") as status:
        for line in status:
            if line.startswith("NSpid:"):
                return line.split()[-1]
    return process.rpartition("/")[2]
