"""The kernel's records about processes, out of the bytes of its rings.

Formats: PERF_RECORD_COMM, _EXIT, _FORK, _MMAP2 and _LOST in linux/perf_event.h, each with the time (CLOCK_MONOTONIC)
behind it, as perf_ring asks for it. Only what all records share is read of each; the rest when somebody asks.
"""

import os
import struct
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

_LOST, _COMM, _EXIT, _FORK, _MMAP2 = 2, 3, 4, 7, 10
_COMM_EXEC = 1 << 13
_MMAP_BUILD_ID = 1 << 14
_HEADER = struct.Struct("<IHHIII")  # type, misc, size, pid; of a task: parent's pid and tid
_SMALLEST = 24  # bytes
_TIME = struct.Struct("<Q")
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


Record = tuple[int, int, bytes, int]
"""Time (CLOCK_MONOTONIC, ns), process, bytes, and where in them it begins."""


@dataclass(frozen=True)
class Records:
    """Records of all CPUs in the order of their times. What threads do is left out."""

    records: list[Record]
    lost: int  # that the kernel had no room for
    lost_ns: int  # until when


def parse(parts: list[bytes]) -> Records:
    """Whole records of several rings. What does not fit the format ends the part it is in."""
    records: list[Record] = []
    lost, lost_ns = 0, 0
    header, time = _HEADER.unpack_from, _TIME.unpack_from
    for data in parts:
        at, end = 0, len(data) - _SMALLEST
        while at <= end:
            kind, misc, size, pid, parent, tid = header(data, at)
            begin, at = at, at + size
            if size < _SMALLEST or at > len(data):
                break
            if kind == _LOST:
                lost, lost_ns = lost + time(data, begin + 16)[0], max(lost_ns, time(data, at - 8)[0])
            elif (
                kind == _MMAP2
                or (kind == _COMM and misc & _COMM_EXEC)
                or (kind == _FORK and pid != parent)
                or (kind == _EXIT and pid == tid)
            ):
                records.append((time(data, at - 8)[0], pid, data, begin))
    records.sort(key=itemgetter(0))
    return Records(records, lost, lost_ns)


def decode(record: Record) -> Event | None:
    """What a record says; None where that is nothing about code."""
    time_ns, _, data, at = record
    kind, misc, size, _, parent, _ = _HEADER.unpack_from(data, at)
    if kind == _MMAP2:
        return _mapped(data, at, misc, size, time_ns)
    if kind == _COMM:
        name = data[at + 16 : at + size - 8].partition(b"\0")[0]
        return Executed(time_ns, name.decode("utf-8", "replace"))
    return Forked(time_ns, parent) if kind == _FORK else Exited(time_ns)


def _mapped(data: bytes, at: int, misc: int, size: int, time_ns: int) -> Mapped | None:
    if size < _NAME_AT + 8:
        return None
    start, length, offset, identity, protection, _ = _MAP.unpack_from(data, at + 16)
    if not protection & _PROT_EXEC:
        return None
    path = data[at + _NAME_AT : at + size - 8].partition(b"\0")[0].decode("utf-8", "replace")
    if misc & _MMAP_BUILD_ID:
        return Mapped(time_ns, start, start + length, offset, identity[4 : 4 + min(identity[0], 20)], 0, 0, 0, path)
    major, minor, inode, generation = _INODE.unpack(identity)
    return Mapped(time_ns, start, start + length, offset, b"", os.makedev(major, minor), inode, generation, path)
