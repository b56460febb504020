"""Records as the kernel writes them into its rings (linux/perf_event.h), for tests."""

import struct

PROT_EXEC = 5


def _record(kind: int, misc: int, body: bytes, time_ns: int) -> bytes:
    body += b"\0" * (-len(body) % 8) + struct.pack("<Q", time_ns)
    return struct.pack("<IHH", kind, misc, 8 + len(body)) + body


def fork(time_ns: int, parent: int, pid: int, tid: int = 0) -> bytes:
    return _record(7, 0, struct.pack("<IIIIQ", pid, parent, tid or pid, parent, time_ns), time_ns)


def exit(time_ns: int, pid: int, tid: int = 0) -> bytes:
    return _record(4, 0, struct.pack("<IIIIQ", pid, 1, tid or pid, 1, time_ns), time_ns)


def execute(time_ns: int, pid: int, comm: str = "program") -> bytes:
    return _record(3, 1 << 13, struct.pack("<II", pid, pid) + comm.encode() + b"\0", time_ns)


def named(time_ns: int, pid: int, comm: str) -> bytes:
    """A thread gets a name: no exec."""
    return _record(3, 0, struct.pack("<II", pid, pid) + comm.encode() + b"\0", time_ns)


def mapped(
    time_ns: int, pid: int, start: int, size: int, offset: int, path: str, build_id: bytes = b"", inode: int = 0
) -> bytes:
    identity = struct.pack("<IIQQ", 0, 0, inode, 0)
    if build_id:
        identity = struct.pack("<B3x20s", len(build_id), build_id)
    body = struct.pack("<IIQQQ", pid, pid, start, size, offset) + identity + struct.pack("<II", PROT_EXEC, 2)
    return _record(10, 1 << 14 if build_id else 2, body + path.encode() + b"\0", time_ns)


def lost(time_ns: int, count: int) -> bytes:
    return _record(2, 0, struct.pack("<QQ", 1, count), time_ns)
