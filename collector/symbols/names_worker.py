"""Asks the process that reads the names in files (names_child.py).

The process that asks has the capabilities to open the files. It reads no more of them than what identifies them.
"""

import fcntl
import mmap
import os
import socket
import struct
import subprocess

from collector.guest import confined_child
from collector.guest.confined_jobs import MAX_MESSAGE_BYTES
from collector.symbols.names_jobs import (
    BEST,
    BUILT,
    ERROR,
    KIND,
    MAKE,
    MAX_SYMCACHE_BYTES,
    TEXT,
    VDSO,
    BuiltSymCache,
    NamesError,
)

COMMAND = ["-m", "collector.symbols.names_child"]
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class WorkerError(RuntimeError):
    """The process did not survive the job, or gave no valid answer."""


def start() -> tuple["subprocess.Popen[bytes]", socket.socket]:
    """Starts the process; returns it and the socket for a `NamesWorker`."""
    return confined_child.start(COMMAND)


class NamesWorker:
    """For one thread. All methods raise NamesError, and WorkerError; then the process must be ended."""

    def __init__(self, jobs: socket.socket) -> None:
        self._jobs = jobs

    def best(self, descriptor: int) -> int:
        """Returns the best kind of names that an open file seems to have (name_kinds.py)."""
        (version,) = _unpack(KIND, self._ask(BEST, b"", descriptor, descriptor))
        return int(version)

    def make(self, descriptor: int, version: int) -> BuiltSymCache:
        """Returns the SymCache of one kind of names in an open file."""
        return self._make(MAKE, KIND.pack(version), descriptor)

    def from_text(self, text: bytes, version: int) -> BuiltSymCache:
        """Returns the SymCache of a Breakpad symbol file with addresses that count from 0."""
        return self._make_of(TEXT, KIND.pack(version), text)

    def vdso(self, vdso: bytes) -> BuiltSymCache:
        """Returns the SymCache of the vDSO."""
        return self._make_of(VDSO, b"", vdso)

    def _make_of(self, wanted: bytes, argument: bytes, data: bytes) -> BuiltSymCache:
        with os.fdopen(os.memfd_create("symbols", os.MFD_CLOEXEC), "w+b") as file:
            file.write(data)
            file.seek(0)
            return self._make(wanted, argument, file.fileno())

    def _make(self, wanted: bytes, argument: bytes, source: int) -> BuiltSymCache:
        target = os.memfd_create("symcache", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            version, load_address, size = _unpack(BUILT, self._ask(wanted, argument, source, target))
            # What is stored is what was hashed, whatever the process does with its descriptor from now on.
            fcntl.fcntl(target, fcntl.F_ADD_SEALS, _SEALS)
            if not 0 < size == os.fstat(target).st_size <= MAX_SYMCACHE_BYTES:
                raise WorkerError("the SymCache has another size")
            return BuiltSymCache(version, load_address, mmap.mmap(target, size, mmap.MAP_PRIVATE, mmap.PROT_READ))
        except OSError as error:
            raise WorkerError(str(error)) from None
        finally:
            os.close(target)

    def _ask(self, wanted: bytes, argument: bytes, source: int, target: int) -> bytes:
        """Returns the answer without its first byte."""
        try:
            socket.send_fds(self._jobs, [wanted + argument], [source, target])
            answer = self._jobs.recv(MAX_MESSAGE_BYTES)
        except OSError as error:
            raise WorkerError(str(error)) from None
        if answer[:1] == ERROR:
            raise NamesError(answer[1:].decode("utf-8", "replace"))
        if answer[:1] != wanted:
            raise WorkerError("there is no answer")
        return answer[1:]


def _unpack(form: struct.Struct, answer: bytes) -> tuple[int, ...]:
    try:
        return form.unpack(answer)
    except struct.error as error:
        raise WorkerError(str(error)) from None
