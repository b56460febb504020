"""Reads the kernel's records about processes from the bytes of its rings.

Formats: PERF_RECORD_COMM, _EXIT, _FORK, _MMAP2, _KSYMBOL and _LOST in linux/perf_event.h, each followed by its
time (CLOCK_MONOTONIC), as perf_ring.py asks for it. `parse` reads only what all records about processes share, `decode`
the rest.
"""

import os
import struct
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

_LOST, _COMM, _EXIT, _FORK, _MMAP2, _KSYMBOL = 2, 3, 4, 7, 10, 17
_COMM_EXEC = 1 << 13
_MMAP_BUILD_ID = 1 << 14
_HEADER = struct.Struct("<IHHIII")  # type, misc, size, pid; of a task: parent's pid and tid
_SMALLEST = 24  # bytes
_TIME = struct.Struct("<Q")
_MAP = struct.Struct("<QQQ24sII")
_INODE = struct.Struct("<IIQQ")
_NAME_AT = 72
_PROT_EXEC = 4
_KERNEL_CODE = struct.Struct("<QIHH")
_KERNEL_NAME_AT = 24
_UNREGISTER = 1


class Forked(NamedTuple):
    """The process is a copy of another one."""

    time_monotonic_ns: int
    parent: int


class Executed(NamedTuple):
    """The process executes another program; all of its mappings are gone."""

    time_monotonic_ns: int
    comm: str


class Exited(NamedTuple):
    time_monotonic_ns: int


class Mapped(NamedTuple):
    """The process mapped a file, or memory without one, where code may be."""

    time_monotonic_ns: int
    start: int
    end: int
    offset: int
    build_id: bytes  # as the kernel read it from the file; b"" where it read none
    device: int  # 0 where there is a build ID, as the next two
    inode: int
    generation: int
    path: str  # as /proc/PID/maps has it, "//anon" where there is none


Event = Forked | Executed | Exited | Mapped


class KernelCode(NamedTuple):
    """The kernel generated code in [start, end), or will free it."""

    time_monotonic_ns: int
    start: int
    end: int
    name: str
    gone: bool


class EventRecord(NamedTuple):
    """A record that is not decoded yet."""

    time_monotonic_ns: int
    pid: int
    data: bytes
    start: int  # where in the data the record begins


@dataclass(frozen=True)
class Records:
    """Records of all CPUs in the order of their times, without those about threads."""

    records: list[EventRecord]
    lost: int  # records that the kernel had no room for
    lost_monotonic_ns: int  # the time of the last loss
    kernel_code: list[KernelCode] = field(default_factory=list)


def parse(parts: list[bytes]) -> Records:
    """Reads whole records of several rings. Stops in a part where the bytes do not fit the format."""
    records: list[EventRecord] = []
    kernel_code: list[KernelCode] = []
    lost, lost_monotonic_ns = 0, 0
    header, time = _HEADER.unpack_from, _TIME.unpack_from
    for data in parts:
        at, end = 0, len(data) - _SMALLEST
        while at <= end:
            kind, misc, size, pid, parent, tid = header(data, at)
            begin, at = at, at + size
            if size < _SMALLEST or at > len(data):
                break
            if kind == _LOST:
                lost += time(data, begin + 16)[0]
                lost_monotonic_ns = max(lost_monotonic_ns, time(data, at - 8)[0])
            elif kind == _KSYMBOL:
                kernel_code.append(_kernel_code(data, begin, size))
            elif (
                kind == _MMAP2
                or (kind == _COMM and misc & _COMM_EXEC)
                or (kind == _FORK and pid != parent)
                or (kind == _EXIT and pid == tid)
            ):
                records.append(EventRecord(time(data, at - 8)[0], pid, data, begin))
    records.sort(key=attrgetter("time_monotonic_ns"))
    return Records(records, lost, lost_monotonic_ns, kernel_code)


def is_mapping(record: EventRecord) -> bool:
    """Whether it says what a process mapped, whatever that is."""
    kind: int = _HEADER.unpack_from(record.data, record.start)[0]
    return kind == _MMAP2


def decode(record: EventRecord) -> Event | None:
    """The event that a record reports; None where it is not about code."""
    monotonic_ns, data, at = record.time_monotonic_ns, record.data, record.start
    kind, misc, size, _, parent, _ = _HEADER.unpack_from(data, at)
    if kind == _MMAP2:
        return _mapped(data, at, misc, size, monotonic_ns)
    if kind == _COMM:
        name = data[at + 16 : at + size - 8].partition(b"\0")[0]
        return Executed(monotonic_ns, name.decode("utf-8", "replace"))
    return Forked(monotonic_ns, parent) if kind == _FORK else Exited(monotonic_ns)


def _kernel_code(data: bytes, at: int, size: int) -> KernelCode:
    """The time is behind the name, which is filled up to 8 bytes: the kernel says a larger size to each further event
    of a CPU that asks for these records, ours or another profiler's."""
    start, length, _, flags = _KERNEL_CODE.unpack_from(data, at + 8)
    name = data[at + _KERNEL_NAME_AT : at + size - 8].partition(b"\0")[0]
    (monotonic_ns,) = _TIME.unpack_from(data, min(at + _KERNEL_NAME_AT + (len(name) + 8 & -8), at + size - 8))
    return KernelCode(monotonic_ns, start, start + length, name.decode("utf-8", "replace"), bool(flags & _UNREGISTER))


def _mapped(data: bytes, at: int, misc: int, size: int, monotonic_ns: int) -> Mapped | None:
    if size < _NAME_AT + 8:
        return None
    start, length, offset, identity, protection, _ = _MAP.unpack_from(data, at + 16)
    if not protection & _PROT_EXEC:
        return None
    path = data[at + _NAME_AT : at + size - 8].partition(b"\0")[0].decode("utf-8", "replace")
    if misc & _MMAP_BUILD_ID:
        return Mapped(
            monotonic_ns, start, start + length, offset, identity[4 : 4 + min(identity[0], 20)], 0, 0, 0, path
        )
    major, minor, inode, generation = _INODE.unpack(identity)
    return Mapped(monotonic_ns, start, start + length, offset, b"", os.makedev(major, minor), inode, generation, path)
