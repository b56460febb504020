"""The requests for symbols that wait for their answer, the smallest file first.

A library of gigabytes takes a minute of CPU, more on a busy host: the names of small programs do not wait for it, also
when it came first. So large files are taken apart from the others.
"""

from operator import itemgetter

from collector.processes.mapped_files import MapsEntry
from collector.symbols.symbol_files import SymbolFiles
from icestream.byte_cache import ByteCache

MAX_BYTES = 2 << 20
"""About 8,000 requests with usual paths; the oldest are dropped, and asked again."""


LARGE_BYTES = 16 << 20
"""Of mapped code: a file with more is large."""


class RequestQueue:
    """One request for each build ID. One thread may take large files, another one the others."""

    def __init__(self, files: SymbolFiles) -> None:
        self._files = files
        self._paths: ByteCache[str, str] = ByteCache(MAX_BYTES, lambda build_id, path: 4 * (len(build_id) + len(path)))

    def put(self, build_id: str, path: str) -> None:
        """`path`: where the file was seen."""
        self._paths.put(build_id, path)

    def take(self, large: bool) -> tuple[str, str] | None:
        """Removes and returns the build ID and path of the smallest file, of the large ones or of the others; None if
        none of them waits."""
        request = self._smallest(large)
        if request is not None:
            self._paths.pop(request[0])
        return request

    def has_large(self) -> bool:
        """Whether a large file waits."""
        return self._smallest(large=True) is not None

    def _smallest(self, large: bool) -> tuple[str, str] | None:
        sized = [(_mapped_bytes(self._files.entries(request[0])), request) for request in self._paths.items()]
        chosen = [(size, request) for size, request in sized if (size > LARGE_BYTES) == large]
        return min(chosen, key=itemgetter(0))[1] if chosen else None


def _mapped_bytes(entries: list[MapsEntry]) -> int:
    """Returns how much code of a file is mapped: this asks no file system, as the size of the file would, so no file
    system of a user can make the collector wait. 0 for what is not known, whose answer takes no time."""
    return max((entry.end - entry.start for entry in entries), default=0)
