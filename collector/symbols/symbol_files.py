"""Opens the files of a build ID on this host: the file itself, and its separate debug files."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

from collector.elf import identity
from collector.elf.error import ElfError
from collector.processes.mapped_files import Place, open_place
from collector.symbols.debug_files import by_build_id, by_link, opened

MAX_BUILD_IDS = 20_000
MAX_PLACES = 4

Held = Callable[[str], int | None]
"""Returns a descriptor of the file of a build ID that is held open, for the caller to close; None if there is none."""


class SymbolFiles:
    """The latest places where each build ID was seen. Safe to use from several threads.

    `held` finds files whose processes and paths are gone.
    """

    def __init__(self, held: Held = lambda build_id: None) -> None:
        self.held = held
        self._lock = threading.Lock()
        self._places: OrderedDict[str, list[Place]] = OrderedDict()

    def note(self, build_id: str, place: Place) -> None:
        with self._lock:
            places = self._places.setdefault(build_id, [])
            if place not in places:
                places.append(place)
                del places[:-MAX_PLACES]
            if len(self._places) > MAX_BUILD_IDS:
                self._places.popitem(last=False)

    def places(self, build_id: str) -> list[Place]:
        """Returns the places of a build ID, the latest first: its process is the most likely to be still alive."""
        with self._lock:
            return list(reversed(self._places.get(build_id, [])))


def open_by_build_id(build_id: str, places: Sequence[Place], path: str, more: Sequence[str] = ()) -> Iterator[int]:
    """Yields descriptors of files with that build ID and of their debug files, those that may have the best names
    first; closes each when the next one is requested.

    `path` and the paths in `more` are tried as well. They come from others, so files with another build ID are skipped.
    """
    roots = list(dict.fromkeys(["", *(f"/proc/{place.pid}/root" for place in places)]))
    for descriptor in by_build_id(build_id, roots):
        yield from _checked(descriptor, build_id)
    paths = dict.fromkeys([place.path for place in places] + [path])
    for descriptor in _files(places, path, more, roots):
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


def _files(places: Sequence[Place], path: str, more: Sequence[str], roots: Sequence[str]) -> Iterator[int]:
    for known in more:
        yield from opened(known)
    for place in places:
        try:
            yield open_place(place)
        except OSError:
            continue
    if path.startswith("/"):
        for root in roots:
            yield from opened(root + path)
