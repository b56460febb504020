"""A file on a disk that can be made to wait: a file system in user space (FUSE, linux/fuse.h) that serves one file.

A read of it waits in the kernel, as a read of a network file system or a worn disk does: no signal ends it. So the file
is served by a process of its own, which ends with the test, and after LONGEST_S in any case. Needs root.

    python slow_disk.py PATH CONTENT FLUSHED    where to mount the file; a file that has its content; text, or ""
"""

import ctypes
import errno
import os
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST_S = 120

_HEADER = struct.Struct("<IIQQIIIHH")  # length, operation, unique, node; user, group, process, extensions, padding
_ANSWER = struct.Struct("<IiQ")  # length, error, unique
_INIT = struct.Struct("<IIIIHHIIHHII24x")  # fuse_init_out
_ATTRIBUTES = struct.Struct("<QII6Q10I")  # fuse_attr_out
_OPEN = struct.Struct("<QII")
_READ = struct.Struct("<QQI")
_FORGET_OP, _GETATTR_OP, _OPEN_OP, _READ_OP, _RELEASE_OP, _FLUSH_OP, _INIT_OP, _INTERRUPT_OP = (
    2,
    3,
    14,
    15,
    18,
    25,
    26,
    36,
)
_DIRECT_IO = 1  # the kernel keeps nothing of the file
_MODE = 0o100644
_DETACH = 2  # of umount2(2)
_PR_SET_PDEATHSIG = 1
_SLOW, _STUCK, _PASS, _WAITS, _DONE = b"s", b"c", b"p", b"w", b"d"

_libc = ctypes.CDLL(None, use_errno=True)


class SlowFile:
    """A file whose reads pass, or wait."""

    def __init__(self, path: Path, server: "subprocess.Popen[bytes]") -> None:
        self.path, self._server = path, server

    def slow(self) -> None:
        """From now on reads wait."""
        self._tell(_SLOW)
        assert self._hear() == _DONE

    def stuck(self) -> None:
        """From now on, closing it takes long if it is flushed."""
        self._tell(_STUCK)
        assert self._hear() == _DONE

    def wait_for_reader(self) -> None:
        """Returns when a read waits, or whoever closes it."""
        assert self._hear() == _WAITS

    def pass_on(self) -> None:
        """Answers the reads that wait, and all later ones."""
        self._tell(_PASS)
        assert self._hear() == _DONE

    def _tell(self, what: bytes) -> None:
        assert self._server.stdin
        os.write(self._server.stdin.fileno(), what)

    def _hear(self) -> bytes:
        assert self._server.stdout
        return os.read(self._server.stdout.fileno(), 1)


@contextmanager
def slow_file(path: Path, content: bytes, flushed: bool = False) -> Iterator[SlowFile]:
    """Makes a file with this content, whose reads pass at first. `flushed`: it is asked when it is closed."""
    path.touch()
    original = path.with_suffix(".content")
    original.write_bytes(content)
    command = [sys.executable, __file__, str(path), str(original), "flushed" * flushed]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        try:
            file = SlowFile(path, server)
            assert file._hear() == _DONE
            yield file
        finally:
            server.kill()  # ends what still waits
            _libc.umount2(os.fsencode(path), _DETACH)


def main(path: str, content: bytes, flushed: bool) -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.alarm(LONGEST_S)
    fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={fuse},rootmode={_MODE:o},user_id=0,group_id=0".encode()
    if _libc.mount(b"slow", os.fsencode(path), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), f"{path} cannot be mounted")
    os.write(1, _DONE)
    slow, waiting = -1, list[bytes]()
    while True:
        ready, _, _ = select.select([0, fuse], [], [])
        if 0 in ready:
            told = os.read(0, 1)
            if not told:
                return
            slow = {_SLOW: _READ_OP, _STUCK: _FLUSH_OP}.get(told, -1)
            if slow < 0:
                for request in waiting:
                    _answer(fuse, request, content, flushed)
                waiting.clear()
            os.write(1, _DONE)
        if fuse in ready:
            request = os.read(fuse, 1 << 20)
            if _HEADER.unpack_from(request)[1] == slow:
                waiting.append(request)
                os.write(1, _WAITS)
            else:
                _answer(fuse, request, content, flushed)


def _answer(fuse: int, request: bytes, content: bytes, flushed: bool) -> None:
    _, operation, unique, *_ = _HEADER.unpack_from(request)
    if operation in (_FORGET_OP, _INTERRUPT_OP):
        return
    error, data = 0, b""
    if operation == _INIT_OP:
        data = _INIT.pack(7, 31, 1 << 16, 0, 1, 1, 1 << 16, 1, 0, 0, 0, 0)
    elif operation == _GETATTR_OP:
        size = len(content)
        data = _ATTRIBUTES.pack(60, 0, 0, 1, size, size >> 9, 0, 0, 0, 0, 0, 0, _MODE, 1, 0, 0, 0, 4096, 0)
    elif operation == _OPEN_OP:
        data = _OPEN.pack(0, _DIRECT_IO, 0)
    elif operation == _READ_OP:
        _, offset, size = _READ.unpack_from(request, _HEADER.size)
        data = content[offset : offset + size]
    elif operation != _RELEASE_OP and not (operation == _FLUSH_OP and flushed):
        error = -errno.ENOSYS
    os.write(fuse, _ANSWER.pack(_ANSWER.size + len(data), error, unique) + data)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).read_bytes(), bool(sys.argv[3]))
