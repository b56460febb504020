"""The kernel's records about processes on every CPU: programs they execute, files they map, forks and exits; and about
the code that it generates.

A software event that never happens (PERF_COUNT_SW_DUMMY) is opened on each CPU for the side-band records that come with
it, see perf_event_open(2). The kernel puts the records into one ring buffer for each CPU, and we read it in bulk: 256
KB a CPU up to 32 CPUs, 128 KB up to 64, else 64 KB. Starting a program takes about 1 KB.
"""

import contextlib
import ctypes
import errno
import mmap
import os
import struct
from collections.abc import Callable

from collector.bpf.perf_event import ATTRIBUTES_SIZE, TYPE_SOFTWARE, online_cpus, open_event

_DUMMY = 9
_SAMPLE_TIME = 1 << 2
_MMAP, _COMM, _TASK, _WATERMARK, _SAMPLE_ID_ALL = 1 << 8, 1 << 9, 1 << 13, 1 << 14, 1 << 18
_MMAP2, _COMM_EXEC, _USE_CLOCKID, _KSYMBOL, _BUILD_ID = 1 << 23, 1 << 24, 1 << 25, 1 << 29, 1 << 34
_CLOCK_MONOTONIC = 1
_WATERMARK_BYTES = 80  # a fork or an exit has 40, a mapping 88 or more
_HEAD_AT, _TAIL_AT = 1024, 1032  # in the first page, struct perf_event_mmap_page


class Rings:
    """The rings of all online CPUs; `follow_cpus` opens them. For one thread."""

    def __init__(self, ring_bytes: int = 0) -> None:
        """`ring_bytes`: the size for one CPU, a power of two and at least a page; 0 chooses by the number of CPUs."""
        self._bytes = ring_bytes or _ring_bytes(len(online_cpus()))
        self._rings: dict[int, _Ring] = {}
        self._left: list[bytes] = []  # unread records of CPUs that went offline

    def follow_cpus(self, opened: Callable[[int], None]) -> None:
        """Opens rings of CPUs that came online and closes those of CPUs that went. Raises OSError.

        `opened` gets a descriptor to poll of each new ring: it is ready once when there are new records.
        """
        online = online_cpus()
        for cpu in self._rings.keys() - online:
            ring = self._rings.pop(cpu)
            self._left.append(ring.read())
            ring.close()
        for cpu in sorted(online - self._rings.keys()):
            try:
                self._rings[cpu] = _Ring(cpu, self._bytes)
                opened(self._rings[cpu].fd)
            except OSError as error:
                if error.errno != errno.ENODEV:  # went offline meanwhile
                    raise

    def read(self) -> list[bytes]:
        """Reads whole records, each ring's in order, and gives their space back to the kernel."""
        left, self._left = self._left, []
        return [data for data in [*left, *[ring.read() for ring in self._rings.values()]] if data]

    def close(self) -> None:
        while self._rings:
            self._rings.popitem()[1].close()


class _Ring:
    def __init__(self, cpu: int, size: int) -> None:
        self.fd = _open(cpu)
        self._size = size
        try:
            self._pages = mmap.mmap(self.fd, mmap.PAGESIZE + size)
        except BaseException:
            os.close(self.fd)
            raise
        self._head = ctypes.c_uint64.from_buffer(self._pages, _HEAD_AT)
        self._tail = ctypes.c_uint64.from_buffer(self._pages, _TAIL_AT)

    def read(self) -> bytes:
        head, tail = self._head.value, self._tail.value
        if head == tail:
            return b""
        begin, end = tail % self._size + mmap.PAGESIZE, head % self._size + mmap.PAGESIZE
        data = self._pages[begin:end] if begin < end else self._pages[begin:] + self._pages[mmap.PAGESIZE : end]
        self._tail.value = head
        return data

    def close(self) -> None:
        del self._head, self._tail
        self._pages.close()
        os.close(self.fd)


def _ring_bytes(cpus: int) -> int:
    return 256 << 10 if cpus <= 32 else 128 << 10 if cpus <= 64 else 64 << 10


def _open(cpu: int) -> int:
    """Raises OSError."""
    flags = _MMAP | _COMM | _TASK | _WATERMARK | _SAMPLE_ID_ALL | _MMAP2 | _COMM_EXEC | _USE_CLOCKID | _KSYMBOL
    with contextlib.suppress(OSError):
        return open_event(_attributes(flags | _BUILD_ID), cpu)
    return open_event(_attributes(flags), cpu)  # before Linux 5.12: device and inode instead of build IDs


def _attributes(flags: int) -> bytes:
    """A poll wakes up for every mapped file; forks and exits alone do not wake it."""
    head = struct.pack("=IIQQQQQI", TYPE_SOFTWARE, ATTRIBUTES_SIZE, _DUMMY, 0, _SAMPLE_TIME, 0, flags, _WATERMARK_BYTES)
    return head.ljust(92, b"\0") + struct.pack("=i", _CLOCK_MONOTONIC)
