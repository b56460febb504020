"""Opens the files of a build ID on this host: the file itself, and its separate debug files.

Anybody can write another program's build ID into a file. So only the files of one owner are asked for its names:
root's, if root has one; else those of the user whose file was seen first, while a process that maps it runs.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from collector.elf import identity
from collector.elf.error import ElfError
from collector.elf.reader import file_reader
from collector.processes import memory
from collector.processes.file_owner import ROOT, owner_of
from collector.processes.mapped_files import MapsEntry, open_entry
from collector.processes.process import exists, folder_of, in_own_user_namespace, user_of
from collector.processes.regular_file import Accept, open_regular
from collector.symbols.debug_files import by_build_id, by_link, opened
from icestream.process.byte_cache import ByteCache
from icestream.symbols.build_ids import without_code

MAX_BYTES = 16 << 20
"""About 23,000 files with usual paths. A path may have 4 kB."""
MAX_HASHED_BYTES = 1 << 20
MAX_ENTRIES = 4
MAX_USERS = 8
_ENTRY_BYTES = 350
"""About what an entry takes beside its path."""
_USER_BYTES = 40

_SEVERAL = "several"
"""In place of a build ID: files with one hash of head, tail and length whose code differs."""

Held = Callable[[str], int | None]
"""Returns a descriptor of the file with a key (Identity.key) that is held open, for the caller to close; None if there
is none."""


class _Seen(NamedTuple):
    """Where a build ID was seen."""

    owner: int  # whose files are asked for names, as owner_of returns it
    entries: tuple[MapsEntry, ...] = ()  # of that owner's files; the latest comes last
    users: tuple[int, ...] = ()  # whose processes had it mapped; the latest new one comes last
    key: str = ""  # of that owner's file


class SymbolFiles:
    """Where each build ID was seen last, and who runs it. Safe to use from several threads.

    `held` finds files whose processes and paths are gone.
    """

    def __init__(self, held: Held = lambda key: None) -> None:
        self._held = held
        self._lock = threading.Lock()
        self._seen: ByteCache[str, _Seen] = ByteCache(MAX_BYTES, _size)
        self._hashed: ByteCache[str, str] = ByteCache(MAX_HASHED_BYTES, lambda hashed, known: len(hashed) + len(known))

    def add(self, build_id: str, owner: int, entry: MapsEntry, key: str = "") -> None:
        """A process has a file with that build ID, of that owner, and with that key (Identity.key) mapped."""
        with self._lock:
            hashed, code = without_code(build_id)
            if code and hashed.startswith(identity.HASHED):  # OpenTelemetry's profiler sends the hash alone
                self._hashed.put(hashed, build_id if self._hashed.get(hashed) in (None, build_id) else _SEVERAL)
            seen = self._seen.get(build_id) or _Seen(owner)
            if owner != seen.owner and (owner == ROOT or not _in_use(seen)):
                seen = seen._replace(owner=owner, entries=())
            if entry in seen.entries:
                return
            user = user_of(entry.pid)
            if user is not None and user not in seen.users:
                seen = seen._replace(users=(*seen.users, user)[-MAX_USERS:])
            if owner == seen.owner:
                seen = seen._replace(entries=(*seen.entries, entry)[-MAX_ENTRIES:], key=key)
            self._seen.put(build_id, seen)

    def owner(self, build_id: str) -> int | None:
        """Returns whose files are asked for names; None if no process was seen with one."""
        seen = self._find(build_id)
        return None if seen is None else seen.owner

    def entries(self, build_id: str) -> list[MapsEntry]:
        """Returns the entries of a build ID, the latest first: its process is the most likely to be still alive."""
        seen = self._find(build_id)
        return [] if seen is None else list(reversed(seen.entries))

    def users(self, build_id: str) -> tuple[int, ...]:
        """Returns the users of the processes that had it mapped; none where they ended at once."""
        seen = self._find(build_id)
        return () if seen is None else seen.users

    def open_held(self, build_id: str) -> int | None:
        """Returns a descriptor of the file if it is held open, for the caller to close; None if it is not."""
        seen = self._find(build_id)
        return None if seen is None else self._held(seen.key)

    def _find(self, build_id: str) -> _Seen | None:
        return self._seen.get(self._whole(build_id))

    def _whole(self, build_id: str) -> str:
        """Adds the code to a hash without it."""
        return self._hashed.get(build_id) or build_id


def _in_use(seen: _Seen) -> bool:
    return seen.owner == ROOT or any(exists(entry.pid) for entry in seen.entries)


def _size(build_id: str, seen: _Seen) -> int:
    texts = len(build_id) + len(seen.key)
    return texts + sum(_ENTRY_BYTES + len(entry.path) for entry in seen.entries) + _USER_BYTES * len(seen.users)


def open_by_build_id(
    build_id: str, owner: int | None, entries: Sequence[MapsEntry], path: str, more: Sequence[str] = ()
) -> Iterator[int]:
    """Yields descriptors of files with that build ID and of their debug files, those that may have the best names
    first; closes each when the next one is requested.

    Looks for nothing but the files of `entries`, and those that the caller itself names: `path`, beside which debug
    files are looked for, too; and `more`, which are opened as our own. Files with another build ID are skipped, and so
    are those that another user than `owner`, root or our own can change, with the debug files that those name, whoever
    owns them. `owner`: as `SymbolFiles.owner` returns it; None skips no user's.
    """
    if not (entries or path or more):
        return
    believed = None if owner is None else {owner, ROOT, os.geteuid()}

    def accept(status: os.stat_result) -> bool:
        return believed is None or owner_of(status) in believed

    # In a user namespace, users mount what they like, also what looks like files of root or does not answer.
    mounted = entries if owner != ROOT else [entry for entry in entries if in_own_user_namespace(entry.pid)]
    roots = list(dict.fromkeys(["/", *(f"{folder_of(entry.pid)}/root" for entry in mounted)]))
    for descriptor in by_build_id(build_id, roots, accept):
        yield from _checked(descriptor, build_id, accept)
    own, code = without_code(build_id)
    # The debug files that belong to a build ID are of the code that it was made for.
    linked = not code or own.startswith(identity.HASHED)
    paths = dict.fromkeys([entry.path for entry in entries] + [path]) if linked else ()
    for descriptor in _files(entries, path, more, roots, accept):
        for checked in _checked(descriptor, build_id, accept):
            for debug in (debug for path in paths for debug in by_link(checked, path, roots, accept)):
                try:
                    yield debug
                finally:
                    os.close(debug)
            yield checked


def has_build_id(descriptor: int, build_id: str) -> bool:
    """Whether an open file has that build ID, or that hash if it has none, and the code that the build ID may say."""
    wanted, code = without_code(build_id)
    try:
        own = identity.read_file(descriptor)
        known = (own.build_id or identity.file_hash(descriptor)) == wanted
        return known and (not code or identity.code_hash(file_reader(descriptor), own) == code)
    except (ElfError, OSError):
        return False


def _checked(descriptor: int, build_id: str, accept: Accept) -> Iterator[int]:
    try:
        if accept(os.fstat(descriptor)) and has_build_id(descriptor, build_id):
            yield descriptor
    finally:
        os.close(descriptor)


def _files(
    entries: Sequence[MapsEntry], path: str, more: Sequence[str], roots: Sequence[str], accept: Accept
) -> Iterator[int]:
    for known in more:
        with suppress(OSError):
            yield open_regular(known)
    for entry in entries:
        try:
            yield memory.patiently(entry.pid, partial(open_entry, entry), os.close)
        except OSError:  # some file systems have other device numbers in the table of mappings than elsewhere
            for root in roots:
                yield from opened(root, entry.path, accept)
    if path.startswith("/"):
        yield from opened("/", path, accept)
