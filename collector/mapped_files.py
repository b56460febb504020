"""Files that processes map, told by what is in them: build ID and segments, read once per file.

A file is opened through /proc/PID/map_files, which also reaches deleted files and other mount namespaces; where that is
not permitted, through /proc/PID/root; and where the process has ended, by its path, if the inode there is the same.
"""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from collector import elf
from icestream.v1.common_pb2 import Mapping

MAX_FILES = 8192


class MappedFile(NamedTuple):
    """A row of a batch's mappings."""

    kind: int
    build_id: str
    file: str


UNKNOWN = MappedFile(Mapping.UNKNOWN, "", "")
JIT = MappedFile(Mapping.NAMED, "", "[jit]")
TRUNCATED = MappedFile(Mapping.NAMED, "", "[truncated]")
VDSO = "[vdso]"


class Place(NamedTuple):
    """Where a process has a file, as /proc/PID/maps says."""

    pid: int
    start: int
    end: int
    device: int
    inode: int
    path: str  # without " (deleted)"


@dataclass(frozen=True)
class Identity:
    build_id: str  # with prefix, "" where the file is too large to be hashed
    elf: elf.Elf


class FileCache:
    """Identities by inode and modification time; `seen(build_id, place)` is told where each build ID was met."""

    def __init__(self, seen: Callable[[str, Place], None] = lambda build_id, place: None) -> None:
        self._seen = seen
        self._known: dict[tuple[int, ...], Identity | None] = {}
        self._vdso: Identity | None = None

    def identify(self, place: Place) -> Identity | None:
        """None where it is no ELF file. Raises OSError where nobody can say any more: the process is gone."""
        status = _status(place)
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if key not in self._known:
            while len(self._known) >= MAX_FILES:
                del self._known[next(iter(self._known))]
            self._known[key] = _read(place)
        identity = self._known[key]
        if identity is not None and identity.build_id:
            self._seen(identity.build_id, place)
        return identity

    def vdso(self) -> Identity | None:
        """The vDSO of this kernel, read from our own memory: all 64-bit processes have the same."""
        if self._vdso is None and (data := vdso_bytes()):
            try:
                found = elf.read_bytes(data)
            except elf.ElfError:
                return None
            self._vdso = Identity(found.build_id, found)
        return self._vdso


def vdso_bytes() -> bytes:
    """The vDSO as an ELF file; empty where the kernel has none."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        line = next((line for line in maps if line.rstrip().endswith(VDSO)), "")
    if not line:
        return b""
    start, _, end = line.split()[0].partition("-")
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        memory.seek(int(start, 16))
        return memory.read(int(end, 16) - int(start, 16))


def open_place(place: Place) -> int:
    """A descriptor of the file; the caller closes it. Raises OSError where it is gone or not a regular file."""
    error: OSError | None = None
    for path in _paths(place):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as failed:
            error = failed
            continue
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and (path != place.path or _same(status, place)):
            return descriptor
        os.close(descriptor)
    raise error or FileNotFoundError(f"{place.path} is not the file that process {place.pid} mapped")


def _read(place: Place) -> Identity | None:
    descriptor = open_place(place)
    try:
        found = elf.read_file(descriptor)
        return Identity(found.build_id or elf.file_hash(descriptor), found)
    except elf.ElfError:
        return None
    finally:
        os.close(descriptor)


def _status(place: Place) -> os.stat_result:
    error: OSError | None = None
    for path in _paths(place):
        try:
            status = os.stat(path)
        except OSError as failed:
            error = failed
            continue
        if path != place.path or _same(status, place):
            return status
    raise error or FileNotFoundError(f"{place.path} is not the file that process {place.pid} mapped")


def _paths(place: Place) -> tuple[str, str, str]:
    process = f"/proc/{place.pid}"
    return f"{process}/map_files/{place.start:x}-{place.end:x}", f"{process}/root{place.path}", place.path


def _same(status: os.stat_result, place: Place) -> bool:
    return (status.st_dev, status.st_ino) == (place.device, place.inode)
