"""What the eBPF program requests of user space, to walk stacks to their ends (`enum request_kind` of bpf/maps.h)."""

import enum
from typing import NamedTuple

from collector.bpf import records
from collector.bpf.ringbuf import RingBuffer


class RequestKind(enum.IntEnum):
    """What a request is for, and what its value is."""

    PROCESS = 1  # the mappings of the process
    MAPPING = 2  # the mapping at an address
    CHUNK = 3  # the rows of a chunk, by its number
    OBJECT = 4  # the object of a managed frame, see bpf/managed.h
    THREAD = 5  # a look at a process while it lives: its thread was sampled for the first time
    TABLE = 6  # the unwinding table of the mapping that starts at an address


class KernelRequest(NamedTuple):
    kind: int
    pid: int
    value: int
    time_monotonic_ns: int


def read_requests(buffer: RingBuffer) -> list[KernelRequest]:
    """Reads all requests. Several CPUs may request the same: each distinct request is returned once, with the time of
    the last."""
    complete = records.complete_requests(buffer.unread())
    distinct = {(what, value): time_monotonic_ns for what, value, time_monotonic_ns in complete[:, 1:4].tolist()}
    buffer.consume(complete.size)
    return [KernelRequest(what & 0xFFFFFFFF, what >> 32, value, time) for (what, value), time in distinct.items()]
