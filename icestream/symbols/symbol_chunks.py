"""Symbol files of which some chunks have come. The chunks lie on disk, so that they take no memory."""

import tempfile
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

MAX_BYTES = 256 << 20
"""The most bytes of chunks of incomplete files; beyond, the file that has waited longest for a chunk is dropped."""
MAX_FILES = 64


@dataclass
class _Incomplete:
    file: IO[bytes]  # it has no name: nothing is left of it when the process dies
    places: dict[int, tuple[int, int]] = field(default_factory=dict)  # chunk -> where it lies in the file, and its size
    size: int = 0


class SymbolChunks:
    """Collects the chunks of files, by key. Used by one thread at a time."""

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES, max_files: int = MAX_FILES) -> None:
        """`folder`: where the chunks lie; it must exist."""
        self._folder = folder
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._incomplete: OrderedDict[Hashable, _Incomplete] = OrderedDict()

    def add(self, key: Hashable, number: int, count: int, data: bytes) -> IO[bytes] | None:
        """Keeps a chunk. Returns all chunks of the file, in order, if it was the last missing one. Raises OSError."""
        waiting = self._incomplete.get(key)
        if waiting is None:
            waiting = self._incomplete[key] = _Incomplete(self._new_file())
        self._incomplete.move_to_end(key)
        if number not in waiting.places:
            waiting.file.seek(waiting.size)
            waiting.file.write(data)
            waiting.places[number] = (waiting.size, len(data))
            waiting.size += len(data)
        if len(waiting.places) < count:
            self._drop_oldest()
            return None
        return self._joined(self._incomplete.pop(key))

    @property
    def size(self) -> int:
        """Bytes of all chunks that are kept."""
        return sum(waiting.size for waiting in self._incomplete.values())

    def _drop_oldest(self) -> None:
        while self.size > self._max_bytes or len(self._incomplete) > self._max_files:
            self._incomplete.popitem(last=False)[1].file.close()

    def _joined(self, waiting: _Incomplete) -> IO[bytes]:
        joined = self._new_file()
        with waiting.file:
            for number in sorted(waiting.places):
                start, size = waiting.places[number]
                waiting.file.seek(start)
                joined.write(waiting.file.read(size))
        joined.seek(0)
        return joined

    def _new_file(self) -> IO[bytes]:
        return tempfile.TemporaryFile(dir=self._folder, buffering=0)
