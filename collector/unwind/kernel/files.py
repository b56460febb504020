"""The unwinding tables of files in the kernel's maps: each file once, however many processes map it."""

import bisect
import time
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from collector.unwind.kernel.extents import Extents
from collector.unwind.kernel.maps import MAX_CHUNKS, NOT_LOADED, UnwindMaps
from collector.unwind.kernel.rules import MAX_RULES_OF_FILE, KernelRules
from collector.unwind.tables.stored_rows import StoredRows
from collector.unwind.tables.table import UnwindTable

EAGER_ROWS = 1 << 20
"""The chunks of a file with more rows (40 MB of code) are loaded when a walk needs them."""

FILE_SHARE = 0.5
"""The share of the rows and chunks in the kernel that one file may take."""

_AGAIN_S = 60.0  # until a chunk that had no room is tried again


@dataclass
class LoadedFile:
    """The rows and chunks of a file in the maps."""

    file_key: str  # as MappedRange has it
    base: int  # ELF virtual address of its first chunk
    first_chunk: int
    chunks: int
    chunk_start: np.ndarray  # as in its table, and its rows; empty if all chunks are loaded
    rows: np.ndarray | StoredRows
    rules: np.ndarray  # uint32: the table's rules -> rows of the map of rules
    extents: list[tuple[int, int]] = field(default_factory=list)  # of rows
    users: int = 0  # processes that map it


@dataclass(frozen=True)
class Chunk:
    """A chunk whose rows a walk needs."""

    file: LoadedFile
    number: int  # in the file

    def read(self) -> np.ndarray:
        """Returns its rows; may wait for a disk. Raises OSError. Safe to call from any thread."""
        start, end = self.file.chunk_start[self.number : self.number + 2].tolist()
        rows = self.file.rows
        return rows.part(start, end) if isinstance(rows, StoredRows) else rows[start:end]


class UnwindFiles:
    """For one thread at a time."""

    def __init__(self, maps: UnwindMaps) -> None:
        self._maps = maps
        self._rows = Extents(maps.rows)
        self._chunks = Extents(MAX_CHUNKS)
        self._rules = KernelRules(maps)
        self._files: OrderedDict[str, LoadedFile] = OrderedDict()
        self._by_chunk: list[LoadedFile] = []  # ordered by first_chunk
        self._chunk_again: dict[int, float] = {}  # a chunk without room -> when it may be tried again
        self.refused = 0  # chunks for which there was no room

    def __len__(self) -> int:
        return len(self._files)

    @property
    def rows(self) -> int:
        """How many rows are in use."""
        return self._maps.rows - self._rows.free_rows

    def get(self, file_key: str) -> LoadedFile | None:
        file = self._files.get(file_key)
        if file is not None:
            self._files.move_to_end(file_key)
        return file

    def may_fit(self, table: UnwindTable) -> bool:
        """Whether a file with this table is not larger than any file may be."""
        rows = len(table.rows)
        return _chunks_of(table) <= FILE_SHARE * MAX_CHUNKS and (
            rows > EAGER_ROWS or rows <= FILE_SHARE * self._maps.rows
        )

    def share_of(self, file_key: str) -> float:
        """What a file takes of the maps: its share of the map that it takes most of. 0 if it is not there."""
        file = self._files.get(file_key)
        if file is None:
            return 0.0
        rules = self._rules.share_of(file.rules) / len(self._maps.rules)
        return max(self.rows_of(file_key) / self._maps.rows, file.chunks / MAX_CHUNKS, rules)

    def share_of_table(self, table: UnwindTable) -> float:
        """The same of a file that is not there yet, at most."""
        rows = min(len(table.rows), EAGER_ROWS) / self._maps.rows
        rules = min(len(table.rules), MAX_RULES_OF_FILE) / len(self._maps.rules)
        return max(rows, _chunks_of(table) / MAX_CHUNKS, rules)

    def rows_of(self, file_key: str) -> int:
        """How many rows a file takes; 0 if it is not there."""
        file = self._files.get(file_key)
        return sum(count for _, count in file.extents) if file else 0

    def add(self, file_key: str, table: UnwindTable) -> LoadedFile | None:
        """Adds a file; returns None if there is no room for it, or it is larger than any file may be."""
        count = _chunks_of(table)
        if not self.may_fit(table):
            self.refused += count
            return None
        first = self._make_room(self._chunks, count)
        rules = self._rule_rows(table) if first is not None else None
        if first is None or rules is None:
            if first is not None:
                self._chunks.free(first, count)
            self.refused += count
            return None
        self._maps.chunks[first : first + count] = (NOT_LOADED, 0)
        lazy = len(table.rows) > EAGER_ROWS
        rows = table.stored if lazy and table.stored is not None else table.rows
        # Copies, because the arrays of a table keep the whole of it in memory.
        file = LoadedFile(file_key, table.base, first, count, table.chunk_start.copy(), rows, rules)
        self._files[file_key] = file
        bisect.insort(self._by_chunk, file, key=lambda known: known.first_chunk)
        if not lazy:
            if not self._load(file, 0, count, table.rows):
                self.evict(file_key)
                return None
            file.chunk_start, file.rows = file.chunk_start[:0], file.chunk_start[:0]
        return file

    def evict(self, file_key: str) -> None:
        """Removes a file. No mapping in the kernel may refer to it any more."""
        file = self._files.pop(file_key)
        self._by_chunk.remove(file)
        self._maps.count_eviction()
        self._maps.chunks[file.first_chunk : file.first_chunk + file.chunks] = (NOT_LOADED, 0)
        self._chunks.free(file.first_chunk, file.chunks)
        for chunk in range(file.first_chunk, file.first_chunk + file.chunks):
            self._chunk_again.pop(chunk, None)
        for start, count in file.extents:
            self._rows.free(start, count)
        self._rules.release(file.rules)

    def missing(self, chunk: int) -> Chunk | None:
        """Returns the chunk with this number in the map, which a walk needs; None if it is loaded, its file is gone, or
        there was no room for it a short time ago."""
        if self._chunk_again.get(chunk, 0.0) > time.monotonic():
            return None
        at = bisect.bisect(self._by_chunk, chunk, key=lambda known: known.first_chunk) - 1
        if at < 0:
            return None
        file = self._by_chunk[at]
        missing = Chunk(file, chunk - file.first_chunk)
        return missing if missing.number < len(file.chunk_start) - 1 and self._lacks(missing) else None

    def load(self, chunk: Chunk, rows: np.ndarray | None) -> None:
        """Loads a chunk with the rows that were read from it; None says that they could not be read. Does nothing if it
        was loaded meanwhile, or its file is gone."""
        if self._files.get(chunk.file.file_key) is not chunk.file or not self._lacks(chunk):
            return
        in_map = chunk.file.first_chunk + chunk.number
        if rows is not None and self._load(chunk.file, chunk.number, chunk.number + 1, rows):
            self._chunk_again.pop(in_map, None)
        else:
            self._chunk_again[in_map] = time.monotonic() + _AGAIN_S

    def _lacks(self, chunk: Chunk) -> bool:
        return bool(self._maps.chunks[chunk.file.first_chunk + chunk.number]["first"] == NOT_LOADED)

    def _load(self, file: LoadedFile, first: int, end: int, source: np.ndarray) -> bool:
        """Loads the chunks from `first` up to `end` with their rows, which are adjacent in the table. Returns whether
        there was room."""
        starts = file.chunk_start[first : end + 1].astype(np.int64)
        allowed = self.rows_of(file.file_key) + len(source) <= FILE_SHARE * self._maps.rows
        row = (self._make_room(self._rows, len(source), file) if allowed else None) if len(source) else 0
        if row is None:
            self.refused += end - first
            return False
        if len(source):
            file.extents.append((row, len(source)))
            self._maps.write_rows(row, source & np.uint32(0xFFFF0000) | file.rules[source & np.uint32(0xFFFF)])
        chunks = self._maps.chunks[file.first_chunk + first : file.first_chunk + end]
        chunks["count"] = np.diff(starts)
        chunks["first"] = row + starts[:-1] - starts[0]  # last: from here on the program uses them
        return True

    def _rule_rows(self, table: UnwindTable) -> np.ndarray | None:
        """Adds the rules of a table. Returns their rows in the map, or None if there is no room."""
        rows = self._rules.add(table.rules)
        for file_key in self._unused() if rows is None else ():
            self.evict(file_key)
            rows = self._rules.add(table.rules)
            if rows is not None:
                break
        return rows

    def _make_room(self, extents: Extents, count: int, keep: LoadedFile | None = None) -> int | None:
        """Allocates `count` rows; evicts files that no process maps if needed, the least recently used first, but not
        `keep`."""
        start = extents.allocate(count)
        for file_key in self._unused() if start is None else ():
            if keep is None or file_key != keep.file_key:
                self.evict(file_key)
                start = extents.allocate(count)
            if start is not None:
                break
        return start

    def _unused(self) -> list[str]:
        """The files that no process maps, the least recently used first."""
        return [file_key for file_key, file in self._files.items() if not file.users]


def _chunks_of(table: UnwindTable) -> int:
    return len(table.chunk_start) - 1
