"""The unwinding tables of files in the kernel's maps: each file once, however many processes map it."""

import bisect
import time
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from collector.unwind.extents import Extents
from collector.unwind.maps import MAX_CHUNKS, MAX_RULES, NOT_LOADED, UnwindMaps
from collector.unwind.table import UnwindTable

EAGER_ROWS = 1 << 20
"""The chunks of a file with more rows (40 MB of code) are loaded when a walk needs them."""

_GRACE_S = 0.002  # by then every walk that saw the old rows is over


@dataclass
class LoadedFile:
    """The rows and chunks of a file in the maps."""

    build_id: str
    base: int  # ELF virtual address of its first chunk
    first_chunk: int
    chunks: int
    table: UnwindTable | None  # None if all chunks are loaded
    rules: np.ndarray  # uint32: the table's rules -> rows of the map of rules
    extents: list[tuple[int, int]] = field(default_factory=list)  # of rows
    users: int = 0  # processes that map it


class UnwindFiles:
    """For one thread at a time."""

    def __init__(self, maps: UnwindMaps) -> None:
        self._maps = maps
        self._rows = Extents(maps.rows)
        self._chunks = Extents(MAX_CHUNKS)
        self._rules: dict[int, int] = {0: 0}
        self._files: OrderedDict[str, LoadedFile] = OrderedDict()
        self._by_chunk: list[LoadedFile] = []  # ordered by first_chunk
        self.refused = 0  # chunks for which there was no room

    def __len__(self) -> int:
        return len(self._files)

    @property
    def rows(self) -> int:
        """How many rows are in use."""
        return self._maps.rows - self._rows.free_rows

    def get(self, build_id: str) -> LoadedFile | None:
        file = self._files.get(build_id)
        if file is not None:
            self._files.move_to_end(build_id)
        return file

    def add(self, build_id: str, table: UnwindTable) -> LoadedFile | None:
        """Adds a file; returns None if there is no room for it."""
        count = len(table.chunk_start) - 1
        first = self._make_room(self._chunks, count)
        if first is None:
            self.refused += count
            return None
        self._maps.chunks[first : first + count] = (NOT_LOADED, 0)
        file = LoadedFile(build_id, table.base, first, count, table, self._rule_rows(table))
        self._files[build_id] = file
        bisect.insort(self._by_chunk, file, key=lambda known: known.first_chunk)
        if len(table.rows) <= EAGER_ROWS:
            self._load(file, 0, count)
            file.table = None
        return file

    def load_chunk(self, chunk: int) -> None:
        """Loads a chunk that a walk needs. Does nothing if it is loaded, or its file is gone."""
        at = bisect.bisect(self._by_chunk, chunk, key=lambda known: known.first_chunk) - 1
        if at < 0:
            return
        file = self._by_chunk[at]
        number = chunk - file.first_chunk
        if file.table is not None and number < file.chunks and self._maps.chunks[chunk]["first"] == NOT_LOADED:
            self._load(file, number, number + 1)

    def _load(self, file: LoadedFile, first: int, end: int) -> None:
        """Loads the chunks from `first` up to `end`; their rows are adjacent in the table."""
        assert file.table is not None
        starts = file.table.chunk_start[first : end + 1].astype(np.int64)
        source = np.asarray(file.table.rows[starts[0] : starts[-1]])
        row = self._make_room(self._rows, len(source)) if len(source) else 0
        if row is None:
            self.refused += end - first
            return
        if len(source):
            file.extents.append((row, len(source)))
            self._maps.write_rows(row, source & np.uint32(0xFFFF0000) | file.rules[source & np.uint32(0xFFFF)])
        chunks = self._maps.chunks[file.first_chunk + first : file.first_chunk + end]
        chunks["count"] = np.diff(starts)
        chunks["first"] = row + starts[:-1] - starts[0]  # last: from here on the program uses them

    def _rule_rows(self, table: UnwindTable) -> np.ndarray:
        """Returns the rows of a table's rules in the map of rules. Adds new rules; row 0 is for those without room."""
        rows = np.zeros(len(table.rules), np.uint32)
        for i, (key, rule) in enumerate(zip(table.rules.view("<u8").tolist(), table.rules, strict=True)):
            row = self._rules.get(key)
            if row is None and len(self._rules) < MAX_RULES:
                row = self._rules[key] = len(self._rules)
                self._maps.rules[row] = rule
            rows[i] = row or 0
        return rows

    def _make_room(self, extents: Extents, count: int) -> int | None:
        """Allocates `count` rows; evicts files that no process maps if needed, the least recently used first."""
        start = extents.allocate(count)
        for build_id in [build_id for build_id, file in self._files.items() if not file.users]:
            if start is not None:
                break
            self._evict(self._files.pop(build_id))
            start = extents.allocate(count)
        return start

    def _evict(self, file: LoadedFile) -> None:
        self._by_chunk.remove(file)
        self._maps.chunks[file.first_chunk : file.first_chunk + file.chunks] = (NOT_LOADED, 0)
        time.sleep(_GRACE_S)
        self._chunks.free(file.first_chunk, file.chunks)
        for start, count in file.extents:
            self._rows.free(start, count)
