"""The requests for symbols that wait for their answer, the smallest file first.

A library of gigabytes takes a minute of CPU, more on a busy host: the names of small programs do not wait for it.
"""

from collector.processes.mapped_files import MapsEntry
from collector.symbols.symbol_files import SymbolFiles
from icestream.byte_cache import ByteCache

MAX_BYTES = 2 << 20
"""About 8,000 requests with usual paths; the oldest are dropped, and asked again."""


class RequestQueue:
    """One request for each build ID. For one thread."""

    def __init__(self, files: SymbolFiles) -> None:
        self._files = files
        self._paths: ByteCache[str, str] = ByteCache(MAX_BYTES, lambda build_id, path: 4 * (len(build_id) + len(path)))

    def put(self, build_id: str, path: str) -> None:
        """`path`: where the file was seen."""
        self._paths.put(build_id, path)

    def take(self) -> tuple[str, str] | None:
        """Removes and returns the build ID and path of the smallest file; None if nothing waits."""
        waiting = self._paths.items()
        if not waiting:
            return None
        smallest = min(waiting, key=lambda request: _mapped_bytes(self._files.entries(request[0])))
        self._paths.pop(smallest[0])
        return smallest


def _mapped_bytes(entries: list[MapsEntry]) -> int:
    """Returns how much code of a file is mapped: this asks no file system, as the size of the file would, so no file
    system of a user can make the collector wait. 0 for what is not known, whose answer takes no time."""
    return max((entry.end - entry.start for entry in entries), default=0)
