"""The kernel's records about processes, out of the bytes of its rings.

Formats: PERF_RECORD_COMM, _EXIT, _FORK, _MMAP2 and _LOST in linux/perf_event.h, each with the time (CLOCK_MONOTONIC)
behind it, as perf_ring asks for it. Only what all records share is read of each; the rest when somebody asks.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

_LOST, _COMM, _EXIT, _FORK, _MMAP2 = 2, 3, 4, 7, 10
_COMM_EXEC = 1 << 13
_MMAP_BUILD_ID = 1 << 14
_SIZE = struct.Struct("<H")
_HEADER = struct.Struct("<IHHII")  # type, misc, size, pid, tid (of a task: parent's pid)
_TASK = struct.Struct("<IIII")  # pid, parent's pid, tid, parent's tid
_MAP = struct.Struct("<QQQ24sII")
_INODE = struct.Struct("<IIQQ")
_NAME_AT = 72
_PROT_EXEC = 4


class Forked(NamedTuple):
    """The process is a copy of another one."""

    time_ns: int
    parent: int


class Executed(NamedTuple):
    """The process runs another program from now on; nothing of what it had mapped is left."""

    time_ns: int
    comm: str


class Exited(NamedTuple):
    time_ns: int


class Mapped(NamedTuple):
    """The process mapped a file, or memory without one, where code may be."""

    time_ns: int
    start: int
    end: int
    offset: int
    build_id: bytes  # as the kernel read it from the file; b"" where it read none, and then there are:
    device: int
    inode: int
    generation: int
    path: str  # as /proc/PID/maps has it, "//anon" where there is none


Event = Forked | Executed | Exited | Mapped


@dataclass(frozen=True)
class Records:
    """Records of all CPUs in the order of their times. Threads' own are left out."""

    data: bytes
    start: np.ndarray  # int64 (n,), where in the data each begins
    pid: np.ndarray  # uint32 (n,)
    time_ns: np.ndarray  # uint64 (n,), CLOCK_MONOTONIC
    lost: int = 0  # what the kernel had no room for
    lost_ns: int = 0  # until when

    def __len__(self) -> int:
        return len(self.start)

    def before(self, time_ns: int) -> tuple["Records", bytes]:
        """The records up to a time, and the bytes of the others."""
        count = int(np.searchsorted(self.time_ns, time_ns, side="right"))
        later = b"".join(self.data[at : at + _SIZE.unpack_from(self.data, at + 6)[0]] for at in self.start[count:])
        some = Records(
            self.data, self.start[:count], self.pid[:count], self.time_ns[:count], self.lost, self.lost_ns
        )  # fmt: skip
        return some, later


def parse(parts: list[bytes]) -> Records:
    """Whole records of several rings. What does not fit the format ends the part it is in."""
    data = b"".join(parts)
    starts = list(_starts(data, parts))
    at = np.array(starts, np.int64)
    words = np.frombuffer(data, np.uint64, len(data) // 8)
    header, ids = words[at >> 3], words[(at >> 3) + 1]
    kind, misc = header.astype(np.uint32), (header >> np.uint64(32)).astype(np.uint16)
    time_ns = words[(at + (header >> np.uint64(48)).astype(np.int64) >> 3) - 1]
    lost, lost_ns = 0, 0
    for i in np.flatnonzero(kind == _LOST).tolist():
        lost, lost_ns = lost + int(words[(starts[i] >> 3) + 2]), max(lost_ns, int(time_ns[i]))
    pid, second = ids.astype(np.uint32), (ids >> np.uint64(32)).astype(np.uint32)
    tid = words[np.minimum((at >> 3) + 2, len(words) - 1)].astype(np.uint32)  # of a task
    wanted = (kind == _MMAP2) | ((kind == _COMM) & ((misc & _COMM_EXEC) != 0))
    wanted |= ((kind == _FORK) & (pid != second)) | ((kind == _EXIT) & (pid == tid))
    kept = np.flatnonzero(wanted)
    kept = kept[np.argsort(time_ns[kept], kind="stable")]
    return Records(data, at[kept], pid[kept], time_ns[kept], lost, lost_ns)


def decode(data: bytes, at: int) -> Event | None:
    """The record that begins there; None where it says nothing of code."""
    kind, misc, size, _, _ = _HEADER.unpack_from(data, at)
    time_ns = int.from_bytes(data[at + size - 8 : at + size], "little")
    if kind == _MMAP2:
        return _mapped(data, at, misc, size, time_ns)
    if kind == _COMM:
        name = data[at + 16 : at + size - 8].partition(b"\0")[0]
        return Executed(time_ns, name.decode("utf-8", "replace"))
    if kind == _EXIT:
        return Exited(time_ns)
    return Forked(time_ns, _TASK.unpack_from(data, at + 8)[1])


def _mapped(data: bytes, at: int, misc: int, size: int, time_ns: int) -> Mapped | None:
    start, length, offset, identity, protection, _ = _MAP.unpack_from(data, at + 16)
    if not protection & _PROT_EXEC:
        return None
    path = data[at + _NAME_AT : at + size - 8].partition(b"\0")[0].decode("utf-8", "replace")
    if misc & _MMAP_BUILD_ID:
        return Mapped(time_ns, start, start + length, offset, identity[4 : 4 + min(identity[0], 20)], 0, 0, 0, path)
    major, minor, inode, generation = _INODE.unpack(identity)
    return Mapped(time_ns, start, start + length, offset, b"", os.makedev(major, minor), inode, generation, path)


def _starts(data: bytes, parts: list[bytes]) -> Iterator[int]:
    """Where records begin: whole ones of at least 24 bytes, in words."""
    at, end = 0, 0
    size_of = _SIZE.unpack_from
    for part in parts:
        at, end = end, end + len(part)
        while at + 24 <= end:
            size = size_of(data, at + 6)[0]
            if size < 24 or size & 7 or at + size > end:
                break
            yield at
            at += size
