"""Files that processes map, identified by what is in them: build ID and segments, read once per file.

A file is opened through /proc/PID/map_files, which also reaches deleted files and other mount namespaces. Where that is
not permitted, it is opened through /proc/PID/root. Where the process has ended, it is opened by its path, if that still
leads to the same file.

Copies of a file may share a build ID and have their code elsewhere (stripped, patched). So a build ID that the kernel
reports identifies a known file only together with the path, and only if a segment of that file is mapped. Both can be
forged, the path in a mount namespace of one's own. So what a process of one user was seen to map says nothing about
processes of others, unless it is a file of root.

Files with one build ID may also have other code (patched, BOLT). The one that is seen first is known by the build ID. A
hash of the code is part of what those with other code are known by.
"""

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from collector.elf import identity as elf_identity
from collector.elf.error import ElfError
from collector.elf.identity import ElfIdentity
from collector.elf.reader import file_reader
from collector.processes import memory
from collector.processes.file_owner import ROOT, file_key, owner_of
from collector.processes.held_files import HeldFiles
from collector.processes.patience import GIVE_UP_S, Patience
from collector.processes.process import folder_of, thread_of
from collector.processes.regular_file import hold, open_in_root, open_regular, reopen
from icestream.process.byte_cache import ByteCache
from icestream.symbols import unnamed
from icestream.symbols.build_ids import with_code
from icestream.v1.common_pb2 import Mapping

MAX_KNOWN_BYTES, MAX_REPORTED_BYTES, MAX_NOTED_BYTES = 16 << 20, 12 << 20, 4 << 20
"""The limits of a FileCache: room for some 5,000 files that are as most are."""
MAX_CODE_BYTES = 4 << 20
"""What the hashes of the code of files may take: room for some 15,000."""
MAX_COPIES = 16  # of files with one build ID
_IDENTITY_BYTES, _SEGMENT_BYTES = 500, 350
_LONGER = 5
"""So many times as long, a file may be read that keeps no other one from being identified."""
T = TypeVar("T")


class MappedFile(NamedTuple):
    """A row of a batch's mappings."""

    kind: int
    build_id: str
    file: str


UNKNOWN = MappedFile(Mapping.UNKNOWN, "", "")
JIT = MappedFile(Mapping.NAMED, "", "[jit]")
TRUNCATED = MappedFile(Mapping.NAMED, "", unnamed.TRUNCATED)
VDSO = "[vdso]"
UPROBES = "[uprobes]"


class MapsEntry(NamedTuple):
    """Where a process has a file mapped, as a line of /proc/PID/maps says. Device and inode are 0 if the kernel
    reported a build ID instead."""

    pid: int
    start: int
    end: int
    device: int
    inode: int
    path: str  # without " (deleted)"
    deleted: bool = False  # the path does not lead to the file any more


@dataclass(frozen=True)
class FileIdentity:
    build_id: str  # as in schemas/icestream/v1/common.proto
    elf: ElfIdentity
    code: str = ""  # a hash; "" of the vDSO
    device: int = 0  # 0, as the inode, where the identity comes from another copy of the file
    inode: int = 0
    owner: int = ROOT  # as owner_of returns it

    @property
    def key(self) -> str:
        return file_key(self.build_id, self.code, self.owner)

    def mapped_at(self, offset: int, length: int) -> bool:
        """Whether a mapping of `length` bytes from that file offset on is what loading this file gives."""
        return any(
            segment.executable
            and segment.offset & ~0xFFF == offset
            and offset + length >= segment.offset + segment.size
            for segment in self.elf.segments
        )


class _Known(NamedTuple):
    identity: FileIdentity | None  # None: no ELF file

    @property
    def bytes(self) -> int:
        return _IDENTITY_BYTES + (len(self.identity.elf.segments) * _SEGMENT_BYTES if self.identity is not None else 0)


class _First(NamedTuple):
    """The file with a build ID that was seen first: root's, if one is."""

    code: str
    owner: int


class _Noted(NamedTuple):
    when: float  # by time.monotonic
    entry: MapsEntry  # the last one


class _Reported(NamedTuple):
    """A file that the kernel reported with its build ID."""

    user: int | None  # the effective one of the process that mapped it; None: it was opened after its process had ended
    path: str
    identity: FileIdentity


class FileListener(Protocol):
    """Is called when a process is seen to map a file."""

    def add(self, build_id: str, owner: int, entry: MapsEntry, key: str) -> None:
        """A process has a file of `owner` (as owner_of returns it) and with that key (Identity.key) mapped. Called at
        most once a second for each key, on any thread."""


class _Patience(Patience):
    """A file is opened by way of the memory of its process, which may not answer either."""

    def is_hopeless(self, pid: int) -> bool:
        return not memory.answers(pid)

    def blamed(self, pid: int, path: str) -> str:
        return super().blamed(pid, path) if memory.answers(pid) else memory.name(pid)


class FileCache:
    """Identities by inode and modification time, and by the build ID that the kernel reported.

    Holds the files open for a while. Safe to use from several threads.
    """

    def __init__(self, give_up_s: float = GIVE_UP_S) -> None:
        """`give_up_s`: how long it waits for the file system of a file."""
        self._listeners: list[FileListener] = []
        self._lock = threading.RLock()
        self._known: ByteCache[tuple[int, ...], _Known] = ByteCache(MAX_KNOWN_BYTES, lambda _, known: known.bytes)
        self._reported: ByteCache[bytes, tuple[_Reported, ...]] = ByteCache(  # by build ID
            MAX_REPORTED_BYTES, lambda _, files: sum(len(file.path) + _Known(file.identity).bytes for file in files)
        )
        self._noted: ByteCache[str, _Noted] = ByteCache(  # by the key of each file
            MAX_NOTED_BYTES, lambda key, noted: len(key) + len(noted.entry.path)
        )
        self._first: ByteCache[str, _First] = ByteCache(MAX_CODE_BYTES, lambda build_id, _: len(build_id))
        self._held = HeldFiles()
        self._patience = _Patience(give_up_s)
        self._more_patience = _Patience(_LONGER * give_up_s, beside=self._patience)
        self._vdso: FileIdentity | None = None

    def add_listener(self, listener: FileListener) -> None:
        """Call it before the first file is identified."""
        self._listeners.append(listener)

    def identify(self, entry: MapsEntry) -> FileIdentity | None:
        """Identifies the file of an entry; None if it is no ELF file. Raises OSError if the process is gone and the
        file cannot be found, and if its file system does not answer."""
        with self._lock:
            return self.note_mapped(self._identify(entry), entry)

    def identify_reported(
        self, entry: MapsEntry, reported: bytes, offset: int, user: int | None, known: bool = True
    ) -> FileIdentity | None:
        """Identifies a file whose build ID the kernel reported when the file was mapped from `offset` on, by a process
        of this effective user, or by one that has ended (None). Reads nothing if a file with that path, that build ID
        and code at that offset is known of that user or of root, unless it may not be that one (`known`: False). Raises
        OSError."""
        with self._lock:
            return self.note_mapped(self._find_reported(entry, reported, offset, user, known), entry)

    def note_mapped(self, identity: FileIdentity | None, entry: MapsEntry) -> FileIdentity | None:
        """Notes that a process has this file mapped, at most once a second for each file."""
        if identity is None or not identity.build_id:
            return identity
        now, key = time.monotonic(), identity.key
        noted = self._noted.get(key)
        if noted is not None and now - noted.when < 1:
            return identity
        if not entry.inode:
            entry = entry._replace(device=identity.device, inode=identity.inode)
        self._noted.put(key, _Noted(now, entry))
        for listener in self._listeners:
            listener.add(identity.build_id, identity.owner, entry, key)
        if not self._held.touch(key, entry.pid):
            self._hold(entry, key)
        return identity

    def open(self, key: str) -> int | None:
        """Opens a file with that key (Identity.key) that was mapped lately; the caller closes the descriptor. None
        where there is none, or its file system does not answer. Reading it may wait for that: see `patiently`."""
        held = self.hold(key)
        if held is None:
            return None
        try:
            return self._more_patience.run(*self._where(key), partial(reopen, held), os.close)
        except OSError:
            return None
        finally:
            os.close(held)

    def hold(self, key: str) -> int | None:
        """As `open`, but the descriptor only keeps the file (regular_file.hold)."""
        held = self._held.open(key)
        if held is not None:
            return held
        noted = self._noted.get(key)  # without our lock: whoever has it may wait for the thread that runs this
        return None if noted is None else self._hold_patiently(self._more_patience, noted.entry, key)

    def patiently(self, key: str, work: Callable[[], T], longer: bool = False) -> T:
        """Returns what `work` returns, which opens the file with that key and reads it. Raises TimeoutError if its file
        system does not answer; then `work` ends on another thread, as late as that may be. `longer`: it may take more
        than some milliseconds, and does not keep files from being identified meanwhile."""
        patience = self._more_patience if longer else self._patience
        return patience.run(*self._where(key), work, lambda late: None)

    def beside(self) -> Patience:
        """Waits for other files of processes. Mounts that hang are the same."""
        return Patience(self._patience._give_up_s, beside=self._patience)

    def expire(self) -> None:
        """Closes files that no process has mapped for some minutes. Call it from time to time."""
        self._held.expire()

    def close(self) -> None:
        self._held.close()
        self._patience.close()
        self._more_patience.close()

    def vdso(self) -> FileIdentity | None:
        """The vDSO of this kernel, read from our own memory: all 64-bit processes have the same."""
        if self._vdso is None and (data := vdso_bytes()):
            try:
                vdso = elf_identity.read_bytes(data)
            except ElfError:
                return None
            self._vdso = FileIdentity(vdso.build_id, vdso)
        return self._vdso

    def _where(self, key: str) -> tuple[int, str]:
        """A process that has the file with that key mapped, and its path there."""
        noted = self._noted.get(key)
        return (0, key) if noted is None else (noted.entry.pid, noted.entry.path)

    def _hold(self, entry: MapsEntry, key: str) -> None:
        descriptor = self._hold_patiently(self._patience, entry, key)
        if descriptor is not None:
            self._held.keep(key, descriptor, entry.pid)

    def _find_reported(
        self, entry: MapsEntry, reported: bytes, offset: int, user: int | None, may_be_known: bool
    ) -> FileIdentity | None:
        known = self._reported.get(reported) or ()
        own = [one for one in known if one.user == user or one.identity.owner == ROOT]
        length = entry.end - entry.start
        fitting = [one for one in own if one.identity.mapped_at(offset, length)]
        here = {one.identity.elf.vaddr(offset): one.identity for one in fitting if one.path == entry.path}
        if len(here) == 1 and may_be_known:
            return next(iter(here.values()))
        try:
            identity = self._identify(entry, reported)
        except OSError:
            others = known if user is None else ()  # it has ended, so that only its samples are named by them
            elsewhere = {one.identity.elf.vaddr(offset): one.identity for one in fitting or own or others}
            if len(elsewhere) != 1:  # not known, or copies that differ
                raise
            return dataclasses.replace(next(iter(elsewhere.values())), device=0, inode=0)
        if identity is not None:
            self._learn(reported, _Reported(user, entry.path, identity))
        return identity

    def _identify(self, entry: MapsEntry, reported: bytes = b"") -> FileIdentity | None:
        held, identity = self._opened(self._patience, entry, reported)
        if identity is not None and identity.build_id and not self._held.touch(identity.key, entry.pid):
            self._held.keep(identity.key, held, entry.pid)
        else:
            os.close(held)
        return identity

    def _hold_patiently(self, patience: Patience, entry: MapsEntry, key: str) -> int | None:
        """Holds the file of an entry; None if it is not the one with that key, or its file system does not answer."""
        with suppress(OSError):
            held, identity = self._opened(patience, entry)
            if identity is not None and identity.key == key:
                return held
            os.close(held)
        return None

    def _opened(self, patience: Patience, entry: MapsEntry, reported: bytes = b"") -> tuple[int, FileIdentity | None]:
        """Returns a descriptor that holds the file, and what it is."""
        held, key, identity = patience.run(
            entry.pid, entry.path, lambda: self._open_and_read(entry, reported), lambda late: os.close(late[0])
        )
        self._known.put(key, _Known(identity))
        return held, self._tell_apart(identity) if identity is not None else None

    def _tell_apart(self, identity: FileIdentity) -> FileIdentity:
        """What a file is known by, if another one with its build ID may have other code."""
        first = self._first.get(identity.build_id)
        if first is None or (identity.owner == ROOT != first.owner):
            first = _First(identity.code, identity.owner)
            self._first.put(identity.build_id, first)
        if identity.code == first.code:
            return identity
        return dataclasses.replace(identity, build_id=with_code(identity.build_id, identity.code))

    def _open_and_read(self, entry: MapsEntry, reported: bytes) -> tuple[int, tuple[int, ...], FileIdentity | None]:
        """Returns a descriptor that holds the file. Changes nothing here: it runs on another thread, and may end when
        nobody waits for it any more."""
        descriptor = open_entry(entry, reported)
        try:
            status = os.fstat(descriptor)
            key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            known = self._known.get(key)
            identity = _read(descriptor, status) if known is None else known.identity
            return hold(descriptor), key, identity
        finally:
            os.close(descriptor)

    def _learn(self, reported: bytes, file: _Reported) -> None:
        known = self._reported.get(reported) or ()
        if file not in known:
            self._reported.put(reported, (*known, file)[-MAX_COPIES:])


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


def open_entry(entry: MapsEntry, reported: bytes = b"") -> int:
    """Opens the file; the caller closes the descriptor. `reported` is the build ID that the kernel reported, if any.

    Raises OSError where the file is gone or no regular file, or where the path leads to another file by now.
    """
    error: OSError | None = None
    accept = None if reported else partial(_same, entry)
    for root, path, sure in _places(entry, reported):
        try:
            descriptor = open_in_root(root, path, None if sure else accept) if root else open_regular(path)
        except OSError as failed:
            error = failed
            continue
        if sure or _same(entry, os.fstat(descriptor)) or _has(descriptor, reported):
            return descriptor
        os.close(descriptor)
    raise error or FileNotFoundError(f"{entry.path} is not the file that process {entry.pid} mapped")


def _read(descriptor: int, status: os.stat_result) -> FileIdentity | None:
    try:
        file = elf_identity.read_file(descriptor)
        code = elf_identity.code_hash(file_reader(descriptor), file)
        build_id = file.build_id or with_code(elf_identity.file_hash(descriptor), code)
        return FileIdentity(build_id, file, code, status.st_dev, status.st_ino, owner_of(status))
    except ElfError:
        return None


def _places(entry: MapsEntry, reported: bytes) -> Iterator[tuple[str, str, bool]]:
    """Roots, and paths below them to try ("": a path that only the kernel decides about), and whether the file there is
    certainly the one that was mapped."""
    # What the kernel reported may be over: the process may have mapped another file in its place. A thread may have
    # ended, and /proc/PID/task has no map_files, so that folder may belong to another process.
    if not memory.hangs(entry.pid):
        thread = thread_of(entry.pid)
        sure = thread == entry.pid and not reported
        yield "", f"/proc/{thread}/map_files/{entry.start:x}-{entry.end:x}", sure
    if entry.path.startswith("/"):
        yield f"{folder_of(entry.pid)}/root", entry.path, not (reported or entry.deleted)
        yield "/", entry.path, False


def _same(entry: MapsEntry, status: os.stat_result) -> bool:
    return (status.st_dev, status.st_ino) == (entry.device, entry.inode)


def _has(descriptor: int, reported: bytes) -> bool:
    """Whether an open file has the build ID that the kernel reported."""
    try:
        return bool(reported) and elf_identity.read_file(descriptor).build_id == f"gnu:{reported.hex()}"
    except ElfError:
        return False
