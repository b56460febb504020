"""Locations and their lines, kept in memory until better ones come.

Lines get better (a higher version) when symbols arrive, so "unknown" is never final: `refresh` looks whether the table
has changed, and reads again what it has newer.
"""

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from api.queries.database import Database
from api.tree.call_tree import IDS_A_QUERY, QUERIES_BEFORE_SYNC, id_list
from api.tree.functions import Functions
from api.tree.growable_column import Column
from api.tree.hash_index import Keys, KeyTable, Rows, distinct

_REFRESH_PAUSE = 5
"""Times as long as a refresh took, before the next: with much to read it takes a sixth of the time at most."""

_MOST_PAUSE_S = 10.0  # a database that was slow once must not keep names away

_NOT_READ = -1


class Locations:
    """Row r has the frames first[r] ... first[r] + many[r] of the frame columns, innermost (inlined) first; none where
    no symbols are known. For one thread at a time.
    """

    def __init__(self, database: Database, max_locations: int) -> None:
        self._database = database
        self._max_locations = max_locations
        self._table = KeyTable()
        self._version = Column(np.uint64)
        self._first = Column(np.int64)
        self._many = Column(np.int32)
        self._mapping = Column(np.int32)  # -1: the location is not in ClickHouse, or was not read yet
        self._address = Column(np.uint64)
        self._frame_function = Column(np.int32)
        self._frame_line = Column(np.uint32)
        self._table_state: tuple[int, ...] = ()
        self._next_refresh = 0.0
        self.functions = Functions(self)

    def __len__(self) -> int:
        return len(self._table)

    @property
    def ids(self) -> Keys:
        return self._table.keys

    @property
    def first(self) -> npt.NDArray[np.int64]:
        return self._first.values

    @property
    def many(self) -> npt.NDArray[np.int32]:
        return self._many.values

    @property
    def mapping(self) -> Rows:
        """Row of `functions.mappings`, -1 where the location has not arrived yet."""
        return self._mapping.values

    @property
    def address(self) -> Keys:
        return self._address.values

    @property
    def frame_function(self) -> Rows:
        """Row of `functions`."""
        return self._frame_function.values

    @property
    def frame_line(self) -> npt.NDArray[np.uint32]:
        return self._frame_line.values

    def rows(self, location_ids: Keys) -> Rows:
        """Rows of locations, read from ClickHouse where they were not yet. Raises ApiError."""
        rows = self._table.add(location_ids)
        fresh = len(self._table) - len(self._version)
        self._version.extend(np.zeros(fresh))
        self._first.extend(np.zeros(fresh))
        self._many.extend(np.zeros(fresh))
        self._mapping.extend(np.full(fresh, _NOT_READ))
        self._address.extend(np.zeros(fresh))
        self._read(distinct(location_ids[self.mapping[rows] == _NOT_READ]))
        return rows

    def refresh(self) -> bool:
        """Whether lines of a location kept here have got better, after reading them again. Raises ApiError."""
        started = time.monotonic()
        if started < self._next_refresh or not len(self):
            return False
        row = self._database.table("SELECT count(), max(version), sum(version) FROM locations")
        state = tuple(int(column[0].as_py()) for column in row.columns)
        if state == self._table_state:
            return False
        answer = self._database.table("SELECT location_id, version FROM locations WHERE version > 0")
        ids, versions = (column.to_numpy() for column in answer.columns)
        rows = self._table.find(ids)
        ids, versions, rows = ids[rows >= 0], versions[rows >= 0], rows[rows >= 0]
        better = ids[versions > self._version.values[rows]]
        missing = self.ids[self.mapping == _NOT_READ]
        self._read(distinct(np.concatenate([better, missing])))
        changed = len(better) > 0 or bool((self.mapping == _NOT_READ).sum() < len(missing))
        self._table_state = state
        took = time.monotonic() - started
        self._next_refresh = time.monotonic() + min(_REFRESH_PAUSE * took, _MOST_PAUSE_S)
        return changed

    def _read(self, ids: Keys) -> None:
        if len(ids) > QUERIES_BEFORE_SYNC * IDS_A_QUERY and self._fits():
            self._store(self._select("", {}))
            return
        for start in range(0, len(ids), IDS_A_QUERY):
            chunk = id_list(ids[start : start + IDS_A_QUERY])
            self._store(self._select("WHERE location_id IN {ids:Array(UInt64)}", {"ids": chunk}))

    def _fits(self) -> bool:
        return int(self._database.table("SELECT count() FROM locations").column(0)[0].as_py()) <= self._max_locations

    def _select(self, where: str, parameters: dict[str, Any]) -> pa.Table:
        return self._database.table(
            "SELECT location_id, version, kind, toString(build_id) AS build_id, toString(file) AS file, address,"
            " lines.function AS function, lines.file AS source, lines.line AS line, lines.start_line AS start_line"
            f" FROM locations {where}",
            parameters,
        )

    def _store(self, answer: pa.Table) -> None:
        answer = self._newest(answer)
        rows = self._table.find(answer["location_id"].to_numpy())
        column = {name: _whole(answer[name]) for name in answer.column_names}
        mapping = self.functions.add_mappings(column["kind"], column["build_id"], column["file"])
        many = column["line"].value_lengths().to_numpy().astype(np.int32)
        names, sources, lines, starts = (
            column[name].flatten() for name in ("function", "source", "line", "start_line")
        )
        frame_mapping, frame_row = np.repeat(mapping, many), np.repeat(rows, many)
        first = len(self._frame_function) + np.cumsum(many) - many
        self._frame_function.extend(self.functions.add(names, frame_mapping, frame_row, sources, starts))
        self._frame_line.extend(lines.to_numpy())
        self._version.values[rows] = answer["version"].to_numpy()
        self._first.values[rows] = first
        self._many.values[rows] = many
        self._mapping.values[rows] = mapping
        self._address.values[rows] = answer["address"].to_numpy()

    def _newest(self, answer: pa.Table) -> pa.Table:
        """One row a location that is kept here and not kept as good already, the one of the highest version."""
        ids, versions = answer["location_id"].to_numpy(), answer["version"].to_numpy()
        order = np.lexsort((versions, ids))
        last = np.ones(len(order), bool)
        last[:-1] = ids[order][1:] != ids[order][:-1]
        order = order[last]
        rows = self._table.find(ids[order])
        there = rows >= 0
        order, rows = order[there], rows[there]
        news = (self.mapping[rows] == _NOT_READ) | (versions[order] > self._version.values[rows])
        return answer.take(pa.array(np.sort(order[news]))).combine_chunks()


def _whole(column: pa.ChunkedArray) -> pa.Array:
    chunks = column.combine_chunks()
    return pa.concat_arrays(chunks.chunks) if isinstance(chunks, pa.ChunkedArray) else chunks
