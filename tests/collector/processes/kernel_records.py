"""Records as the kernel writes them into its rings (linux/perf_event.h), for tests."""

import struct

PROT_EXEC = 5


def _record(kind: int, misc: int, body: bytes, monotonic_ns: int) -> bytes:
    body += b"\0" * (-len(body) % 8) + struct.pack("<Q", monotonic_ns)
    return struct.pack("<IHH", kind, misc, 8 + len(body)) + body


def fork(monotonic_ns: int, parent: int, pid: int, tid: int = 0) -> bytes:
    return _record(7, 0, struct.pack("<IIIIQ", pid, parent, tid or pid, parent, monotonic_ns), monotonic_ns)


def exit_record(monotonic_ns: int, pid: int, tid: int = 0) -> bytes:
    return _record(4, 0, struct.pack("<IIIIQ", pid, 1, tid or pid, 1, monotonic_ns), monotonic_ns)


def execute(monotonic_ns: int, pid: int, comm: str = "program") -> bytes:
    return _record(3, 1 << 13, struct.pack("<II", pid, pid) + comm.encode() + b"\0", monotonic_ns)


def named(monotonic_ns: int, pid: int, comm: str) -> bytes:
    """A thread gets a name: no exec."""
    return _record(3, 0, struct.pack("<II", pid, pid) + comm.encode() + b"\0", monotonic_ns)


def mapped(
    monotonic_ns: int, pid: int, start: int, size: int, offset: int, path: str, build_id: bytes = b"", inode: int = 0
) -> bytes:
    identity = struct.pack("<IIQQ", 0, 0, inode, 0)
    if build_id:
        identity = struct.pack("<B3x20s", len(build_id), build_id)
    body = struct.pack("<IIQQQ", pid, pid, start, size, offset) + identity + struct.pack("<II", PROT_EXEC, 2)
    return _record(10, 1 << 14 if build_id else 2, body + path.encode() + b"\0", monotonic_ns)


def lost(monotonic_ns: int, count: int) -> bytes:
    return _record(2, 0, struct.pack("<QQ", 1, count), monotonic_ns)
