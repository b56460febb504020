"""The requests for symbols that wait for their answer: the smallest file and the oldest request take turns.

A library of gigabytes takes a minute of CPU, more on a busy host: the names of small programs do not wait for it, also
when it came first. So large files are taken apart from the others. And a user with ever new small programs does not
keep the names of larger ones away: every second answer is the one that was asked for first.
"""

import itertools
import threading
from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

from collector.symbols.symbol_files import SymbolFiles
from icestream.byte_cache import ByteCache

MAX_BYTES = 2 << 20
"""About 3,000 requests with usual paths; those that were asked for least recently are dropped, and asked again."""
_REQUEST_BYTES = 150
"""About what a request takes beside its texts."""

LARGE_BYTES = 16 << 20
"""Of mapped code: a file with more is large."""


class Request(NamedTuple):
    """A build ID whose symbols are wanted."""

    build_id: str
    path: str  # where the file was seen
    downloaded: str | None  # None before debuginfod was asked; then its error, or "" if it had the file
    number: int  # counts requests


class RequestQueue:
    """One request for each build ID. One thread may take large files, another one the others."""

    def __init__(self, files: SymbolFiles) -> None:
        self._files = files
        self._requests: ByteCache[str, Request] = ByteCache(MAX_BYTES, _size)
        self._numbers = itertools.count()
        self._oldest_next = {True: False, False: False}  # of large files, of the others
        self._lock = threading.Lock()

    def put(self, build_id: str, path: str, downloaded: str | None = None) -> None:
        """A repeat keeps the place of the first request, and what is known of the download."""
        with self._lock:
            known, number = self._requests.get(build_id), next(self._numbers)
            if known is not None:
                number, downloaded = known.number, known.downloaded if downloaded is None else downloaded
            self._requests.put(build_id, Request(build_id, path, downloaded, number))

    def take(self, large: bool) -> Request | None:
        """Removes and returns the next request, of the large files or of the others; None if none of them waits."""
        with self._lock:
            waiting = self._waiting(large)
            if not waiting:
                return None
            oldest = self._oldest_next[large]
            self._oldest_next[large] = not oldest
            order: Callable[[Request], int] = attrgetter("number") if oldest else self._mapped_bytes
            request = min(waiting, key=order)
            self._requests.pop(request.build_id)
            return request

    def has_large(self) -> bool:
        """Whether a large file waits."""
        return bool(self._waiting(large=True))

    def drop_repeat(self, build_id: str) -> None:
        """Drops the request of a build ID that was answered just now, unless it waits for its downloaded file."""
        with self._lock:
            request = self._requests.get(build_id)
            if request is not None and request.downloaded is None:
                self._requests.pop(build_id)

    def _waiting(self, large: bool) -> list[Request]:
        """The requests for large files, or those for the others, in any order."""
        return [request for _, request in self._requests.items() if self._is_large(request) == large]

    def _is_large(self, request: Request) -> bool:
        """A file that is looked for at its path, because no process was seen with it, may have any size."""
        mapped = self._mapped_bytes(request)
        return mapped > LARGE_BYTES or (mapped == 0 and request.path.startswith("/"))

    def _mapped_bytes(self, request: Request) -> int:
        """How much code of a file is mapped, 0 if no process was seen with it. This asks no file system, as the size of
        the file would, so no file system of a user can make the collector wait."""
        entries = self._files.entries(request.build_id)
        return max((entry.end - entry.start for entry in entries), default=0)


def _size(build_id: str, request: Request) -> int:
    return _REQUEST_BYTES + 4 * (len(build_id) + len(request.path) + len(request.downloaded or ""))
