"""The kernel's records about processes on every CPU: programs they execute, files they map, forks and exits; and about
the code that it generates.

A software event that never happens (PERF_COUNT_SW_DUMMY) is opened on each CPU for the side-band records that come with
it, see perf_event_open(2). The kernel puts the records into one ring buffer for each CPU, and we read it in bulk: 256
KB a CPU up to 32 CPUs, 128 KB up to 64, else 64 KB. Starting a program takes about 1 KB.

Waking us costs the process that maps a file more than the record does: an interrupt of its own CPU, and often one of
another. So a second event, the bell, wakes us for mapped files and generated code, while that is wanted, and once until
we read. Its own records are not read.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import struct
from collections.abc import Callable, Collection

from collector.bpf.perf_event import ATTRIBUTES_SIZE, TYPE_SOFTWARE, online_cpus, open_event

_DUMMY = 9
_SAMPLE_TIME = 1 << 2
_MMAP, _COMM, _TASK, _WATERMARK, _SAMPLE_ID_ALL = 1 << 8, 1 << 9, 1 << 13, 1 << 14, 1 << 18
_MMAP2, _COMM_EXEC, _USE_CLOCKID, _KSYMBOL, _BUILD_ID = 1 << 23, 1 << 24, 1 << 25, 1 << 29, 1 << 34
_CLOCK_MONOTONIC = 1
_ENABLE, _DISABLE, _PAUSE_OUTPUT = 0x2400, 0x2401, 0x40042409  # PERF_EVENT_IOC_*
_HEAD_AT, _TAIL_AT = 1024, 1032  # in the first page, struct perf_event_mmap_page


class Rings:
    """The rings of all online CPUs; `follow_cpus` opens them. For one thread."""

    def __init__(self, ring_bytes: int = 0) -> None:
        """`ring_bytes`: the size for one CPU, a power of two and at least a page; 0 chooses by the number of CPUs."""
        self._bytes = ring_bytes or _ring_bytes(len(online_cpus()))
        self._rings: dict[int, _Ring] = {}
        self._bells: dict[int, _Ring] = {}
        self._ringing = True
        self._hushed: list[_Ring] = []
        self._left: list[bytes] = []  # unread records of CPUs that went offline

    def follow_cpus(self, opened: Callable[[int], None]) -> None:
        """Opens rings of CPUs that came online and closes those of CPUs that went. Raises OSError.

        `opened` gets descriptors to poll: one is ready once when there are new records, as `ring` says.
        """
        online = online_cpus()
        for cpu in self._rings.keys() - online:
            ring = self._rings.pop(cpu)
            self._left.append(ring.read())
            ring.close()
            if cpu in self._bells:
                self._bells.pop(cpu).close()
        for cpu in sorted(online - self._bells.keys()):
            try:
                if cpu not in self._rings:
                    self._rings[cpu] = _Ring(_open(cpu), self._bytes)
                    opened(self._rings[cpu].fd)
                self._bells[cpu] = _Ring(open_event(_attributes(_MMAP | _KSYMBOL, 1), cpu), mmap.PAGESIZE)
                self._bells[cpu].enable(self._ringing)
                opened(self._bells[cpu].fd)
            except OSError as error:
                if error.errno != errno.ENODEV:  # went offline meanwhile
                    raise

    def ring(self, ringing: bool) -> None:
        """Whether a mapped file or generated code wakes us, as in the beginning, or only a ring that is half full. A
        fork or an exit alone never does."""
        self._ringing = ringing
        for bell in self._bells.values():
            bell.enable(ringing)

    def hush(self, descriptors: Collection[int]) -> None:
        """These were ready, and wake nobody any more until `read`."""
        for bell in self._bells.values():
            if bell.fd in descriptors:
                bell.pause(True)
                self._hushed.append(bell)

    def read(self) -> list[bytes]:
        """Reads whole records, each ring's in order, and gives their space back to the kernel."""
        hushed, self._hushed = self._hushed, []
        for bell in hushed:
            bell.skip()  # a full one does not ring
            bell.pause(False)
        left, self._left = self._left, []
        return [data for data in [*left, *[ring.read() for ring in self._rings.values()]] if data]

    def close(self) -> None:
        for rings in (self._rings, self._bells):
            while rings:
                rings.popitem()[1].close()


class _Ring:
    def __init__(self, fd: int, size: int) -> None:
        """Takes over the descriptor of an event."""
        self.fd = fd
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

    def skip(self) -> None:
        self._tail.value = self._head.value

    def pause(self, paused: bool) -> None:
        """Costs less than `enable`, which interrupts the CPU; a record that is not made costs nothing."""
        fcntl.ioctl(self.fd, _PAUSE_OUTPUT, int(paused))

    def enable(self, enabled: bool) -> None:
        self.skip()
        fcntl.ioctl(self.fd, _ENABLE if enabled else _DISABLE, 0)

    def close(self) -> None:
        del self._head, self._tail
        self._pages.close()
        os.close(self.fd)


def _ring_bytes(cpus: int) -> int:
    return 256 << 10 if cpus <= 32 else 128 << 10 if cpus <= 64 else 64 << 10


def _open(cpu: int) -> int:
    """Raises OSError."""
    flags = _MMAP | _COMM | _TASK | _MMAP2 | _COMM_EXEC | _KSYMBOL
    with contextlib.suppress(OSError):
        return open_event(_attributes(flags | _BUILD_ID), cpu)
    return open_event(_attributes(flags), cpu)  # before Linux 5.12: device and inode instead of build IDs


def _attributes(flags: int, watermark_bytes: int = 0) -> bytes:
    """`watermark_bytes`: a poll wakes up for so many; 0: when the ring is half full."""
    flags |= _WATERMARK | _SAMPLE_ID_ALL | _USE_CLOCKID
    head = struct.pack("=IIQQQQQI", TYPE_SOFTWARE, ATTRIBUTES_SIZE, _DUMMY, 0, _SAMPLE_TIME, 0, flags, watermark_bytes)
    return head.ljust(92, b"\0") + struct.pack("=i", _CLOCK_MONOTONIC)
