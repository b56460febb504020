"""Where on this host the file of a build ID can be opened."""

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator

from collector import elf
from collector.mapped_files import Place, open_place

MAX_BUILD_IDS = 20_000
MAX_PLACES = 4
_DEBUG = "/usr/lib/debug/.build-id"


class SymbolFiles:
    """Places where build IDs were met, the latest of each. Safe to use from several threads."""

    def __init__(self) -> None:
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
        """The latest first: that process is the most likely to be still there."""
        with self._lock:
            return list(reversed(self._places.get(build_id, [])))


def open_by_build_id(build_id: str, places: list[Place], path: str) -> Iterator[int]:
    """Descriptors of files with that build ID, separate debug files first; each is closed after its turn.

    `path` is tried too: it is what somebody says they saw, so nothing is taken from a file with another build ID.
    """
    for descriptor in _candidates(build_id, places, path):
        try:
            if has_build_id(descriptor, build_id):
                yield descriptor
        finally:
            os.close(descriptor)


def has_build_id(descriptor: int, build_id: str) -> bool:
    """Whether an open file has that identity."""
    try:
        found = elf.read_file(descriptor).build_id
        return (found or elf.file_hash(descriptor)) == build_id
    except (elf.ElfError, OSError):
        return False


def _candidates(build_id: str, places: list[Place], path: str) -> Iterator[int]:
    roots = dict.fromkeys(["", *(f"/proc/{place.pid}/root" for place in places)])
    if build_id.startswith("gnu:") and len(build_id) > len("gnu:") + 2:
        hex = build_id.removeprefix("gnu:")
        for root in roots:
            yield from _opened(f"{root}{_DEBUG}/{hex[:2]}/{hex[2:]}.debug")
    for place in places:
        try:
            yield open_place(place)
        except OSError:
            continue
    if path.startswith("/"):
        for root in roots:
            yield from _opened(root + path)


def _opened(path: str) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError):
        return
    yield descriptor
