"""Reads many areas of another process's memory in few system calls: process_vm_readv(2)."""

import ctypes
import errno
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

MAX_BYTES = 4 << 20  # in one call of `read_areas`; the areas beyond are not read
_IOV_MAX = 1024


def read_areas(pid: int, addresses: np.ndarray, sizes: np.ndarray) -> list[bytes | None]:
    """Returns `sizes[i]` bytes at `addresses[i]` (uint64) for each i; None for an area that cannot be read
    completely."""
    contents: list[bytes | None] = [None] * len(addresses)
    areas = np.stack([addresses.astype(np.uint64), sizes.astype(np.uint64)], axis=1)
    count = int(np.searchsorted(np.cumsum(sizes.astype(np.float64)), MAX_BYTES, side="right"))
    at = 0
    while at < count:
        part = np.ascontiguousarray(areas[at : min(at + _IOV_MAX, count)])
        data = _read(pid, part)
        if data is None:
            return contents
        ends = np.cumsum(part[:, 1]).astype(np.int64)
        complete = int(np.searchsorted(ends, len(data), side="right"))
        for i, (end, size) in enumerate(zip(ends[:complete].tolist(), part[:complete, 1].tolist(), strict=True)):
            contents[at + i] = data[end - size : end]
        at += complete + (complete < len(part))  # the kernel stops at the first area that it cannot read: skip it
    return contents


def _read(pid: int, areas: np.ndarray) -> bytes | None:
    """Returns the areas up to the first that cannot be read, one after the other; None if there is no such process."""
    size = int(areas[:, 1].sum())
    buffer = ctypes.create_string_buffer(max(size, 1))
    here = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), size)
    count = _readv()(pid, here, 1, areas.ctypes.data, len(areas), 0)
    if count >= 0:
        return buffer.raw[:count]
    return b"" if ctypes.get_errno() == errno.EFAULT else None


@functools.cache
def _readv() -> Callable[..., Any]:
    readv: Any = ctypes.CDLL(None, use_errno=True).process_vm_readv
    readv.restype = ctypes.c_ssize_t
    unsigned = ctypes.c_ulong
    readv.argtypes = (ctypes.c_int, ctypes.c_void_p, unsigned, ctypes.c_void_p, unsigned, unsigned)
    return readv  # type: ignore[no-any-return]
