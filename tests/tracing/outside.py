"""Reads thread and process contexts from outside, as a profiler does: stops a thread, and goes by its registers."""

import ctypes
import os
import re
import struct
from pathlib import Path

from collector.activity import tls_symbol
from collector.elf import file as headers
from collector.elf.reader import bytes_reader

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_LIBC.ptrace.restype = ctypes.c_long
_GETREGS, _ATTACH, _DETACH = 12, 16, 17
_FS_BASE = 21  # word of struct user_regs_struct
_WALL = 0x40000000


def publisher(pid: int) -> tuple[str, int]:
    """The mapped file that defines the variable, and the variable's distance from the thread pointer."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        addresses, modes, offset, _, inode, *path = line.split(None, 5)
        if "x" not in modes or inode == "0" or not path:
            continue
        file = Path(f"/proc/{pid}/map_files/{addresses}").read_bytes()
        symbol = tls_symbol.read_file(bytes_reader(file), b"otel_thread_ctx_v1").symbol
        if symbol is not None:
            segment = next(s for s in headers.parse(bytes_reader(file)).loads if s.offset == int(offset, 16))
            bias = int(addresses.split("-")[0], 16) - segment.vaddr
            place = symbol.place(lambda at, size: memory(pid, at, size), bias, False, None)
            assert place is not None
            assert not place.module
            return path[0], place.offset
    raise AssertionError("no mapped file defines the variable")


def memory(pid: int, address: int, size: int) -> bytes:
    descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    try:
        return os.pread(descriptor, size, address)
    finally:
        os.close(descriptor)


def thread_record(pid: int, tid: int, offset: int) -> bytes | None:
    """The 28 bytes that a thread's variable points at, the thread being stopped; None for a null pointer."""
    registers = (ctypes.c_uint64 * 27)()
    assert _LIBC.ptrace(_ATTACH, tid, None, None) == 0, os.strerror(ctypes.get_errno())
    try:
        os.waitpid(tid, _WALL)
        assert _LIBC.ptrace(_GETREGS, tid, None, registers) == 0
        (pointer,) = struct.unpack("<Q", memory(pid, registers[_FS_BASE] + offset, 8))
        return memory(pid, pointer, 28) if pointer else None
    finally:
        _LIBC.ptrace(_DETACH, tid, None, None)


def process_context(pid: int) -> bytes | None:
    """The payload of the process context; None where there is none."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    found = re.search(r"^([0-9a-f]+)-.*(?:/memfd:OTEL_CTX|\[anon_shmem:OTEL_CTX\])", maps, re.MULTILINE)
    if found is None:
        return None
    signature, version, size, published, payload = struct.unpack("<8sIIQQ", memory(pid, int(found[1], 16), 32))
    assert (signature, version) == (b"OTEL_CTX", 2)
    assert published > 0
    return memory(pid, payload, size)
