"""Opens the files of a build ID on this host: the file itself, and its separate debug files."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from collector.elf import identity
from collector.elf.error import ElfError
from collector.processes.mapped_files import MapsEntry, open_entry
from collector.processes.process import user_of
from collector.symbols.debug_files import by_build_id, by_link, opened
from icestream.byte_cache import ByteCache

MAX_BYTES = 16 << 20
"""About 23,000 files with usual paths. A path may have 4 kB."""
MAX_ENTRIES = 4
MAX_USERS = 8
_ENTRY_BYTES = 350
"""About what an entry takes beside its path."""
_USER_BYTES = 40

Held = Callable[[str], int | None]
"""Returns a descriptor of the file of a build ID that is held open, for the caller to close; None if there is none."""


class _Seen(NamedTuple):
    """Where a build ID was seen."""

    entries: tuple[MapsEntry, ...] = ()  # the latest comes last
    users: tuple[int, ...] = ()  # whose processes had it mapped; the latest new one comes last


class SymbolFiles:
    """Where each build ID was seen last, and who runs it. Safe to use from several threads.

    `held` finds files whose processes and paths are gone.
    """

    def __init__(self, held: Held = lambda build_id: None) -> None:
        self.held = held
        self._lock = threading.Lock()
        self._seen: ByteCache[str, _Seen] = ByteCache(MAX_BYTES, _size)

    def note(self, build_id: str, entry: MapsEntry) -> None:
        with self._lock:
            seen = self._seen.get(build_id) or _Seen()
            if entry in seen.entries:
                return
            user = user_of(entry.pid)
            users = seen.users if user is None or user in seen.users else (*seen.users, user)[-MAX_USERS:]
            self._seen.put(build_id, _Seen((*seen.entries, entry)[-MAX_ENTRIES:], users))

    def entries(self, build_id: str) -> list[MapsEntry]:
        """Returns the entries of a build ID, the latest first: its process is the most likely to be still alive."""
        return list(reversed((self._seen.get(build_id) or _Seen()).entries))

    def users(self, build_id: str) -> tuple[int, ...]:
        """Returns the users of the processes that had it mapped; none where they ended at once."""
        return (self._seen.get(build_id) or _Seen()).users


def _size(build_id: str, seen: _Seen) -> int:
    return len(build_id) + sum(_ENTRY_BYTES + len(entry.path) for entry in seen.entries) + _USER_BYTES * len(seen.users)


def open_by_build_id(build_id: str, entries: Sequence[MapsEntry], path: str, more: Sequence[str] = ()) -> Iterator[int]:
    """Yields descriptors of files with that build ID and of their debug files, those that may have the best names
    first; closes each when the next one is requested.

    `path` and the paths in `more` are tried as well. They come from others, so files with another build ID are skipped.
    """
    roots = list(dict.fromkeys(["", *(f"/proc/{entry.pid}/root" for entry in entries)]))
    for descriptor in by_build_id(build_id, roots):
        yield from _checked(descriptor, build_id)
    paths = dict.fromkeys([entry.path for entry in entries] + [path])
    for descriptor in _files(entries, path, more, roots):
        for checked in _checked(descriptor, build_id):
            for debug in (debug for path in paths for debug in by_link(checked, path, roots)):
                try:
                    yield debug
                finally:
                    os.close(debug)
            yield checked


def has_build_id(descriptor: int, build_id: str) -> bool:
    """Whether an open file has that build ID, or that hash if it has none."""
    try:
        own = identity.read_file(descriptor).build_id
        return (own or identity.file_hash(descriptor)) == build_id
    except (ElfError, OSError):
        return False


def _checked(descriptor: int, build_id: str) -> Iterator[int]:
    try:
        if has_build_id(descriptor, build_id):
            yield descriptor
    finally:
        os.close(descriptor)


def _files(entries: Sequence[MapsEntry], path: str, more: Sequence[str], roots: Sequence[str]) -> Iterator[int]:
    for known in more:
        yield from opened(known)
    for entry in entries:
        try:
            yield open_entry(entry)
        except OSError:
            continue
    if path.startswith("/"):
        for root in roots:
            yield from opened(root + path)
