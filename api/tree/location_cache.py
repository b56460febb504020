"""Locations with their lines, read from ClickHouse and kept until better lines come.

Lines get better (a higher version) when symbols arrive, so that a location without symbols may get them at any time:
`refresh` checks whether the table has changed, and reads what is newer in it.
"""

import time

import numpy as np
import pyarrow as pa

from api.array_types import Ids, Rows
from api.queries import id_lists
from api.queries.database import Database
from api.queries.locations import (
    TableState,
    count_locations,
    read_all_locations,
    read_locations,
    read_table_state,
    read_versions,
)
from api.tree.distinct import distinct_ids
from api.tree.frame_functions import UNNAMED, FrameFunctions
from api.tree.functions import Functions
from api.tree.locations import Locations
from api.tree.mappings import Mappings

_PAUSE_FACTOR = 5
"""The pause after a refresh is this many times as long as the refresh took: refreshing takes a sixth of the time."""

_MAX_PAUSE_S = 10.0  # one slow answer of the database must not keep names away for long


class LocationCache:
    """For one thread at a time."""

    def __init__(self, database: Database, max_locations: int) -> None:
        self._database = database
        self._max_locations = max_locations
        self._table_state: TableState | None = None
        self._next_refresh = 0.0  # time.monotonic()
        self.mappings = Mappings()
        self.locations = Locations()
        self._functions = Functions(self.mappings)
        self.frame_functions = FrameFunctions(self._functions, self.locations, self.mappings)
        self._in_trees = 0
        """So many rows of `locations` are in trees already."""
        self._has_better = False
        """Whether one of these has got better lines that `refresh` has not told."""

    def rows(self, location_ids: Ids) -> Rows:
        """Rows of `locations`, after reading the missing ones from ClickHouse. Raises ApiError."""
        self._in_trees = len(self.locations)
        rows = self.locations.add(location_ids)
        self._read(distinct_ids(location_ids[self.locations.is_missing[rows]]))
        return rows

    def refresh(self) -> bool:
        """Reads better lines, and returns whether any location has got some since the last call. Raises ApiError."""
        self._look_for_better()
        has_better, self._has_better = self._has_better, False
        return has_better

    def _look_for_better(self) -> None:
        started = time.monotonic()
        if started < self._next_refresh or not len(self.locations):
            return
        state = read_table_state(self._database)
        if state == self._table_state:
            return
        self._in_trees = len(self.locations)
        ids, versions = read_versions(self._database)
        rows = self.locations.find(ids)
        ids, versions, rows = ids[rows >= 0], versions[rows >= 0], rows[rows >= 0]
        better = ids[versions > self.locations.version[rows]]
        missing = self.locations.ids[self.locations.is_missing]
        self._read(distinct_ids(np.concatenate([better, missing])))
        self._table_state = state
        now = time.monotonic()
        self._next_refresh = now + min(_PAUSE_FACTOR * (now - started), _MAX_PAUSE_S)

    def _read(self, ids: Ids) -> None:
        too_many_ids = id_lists.count_queries(ids) > id_lists.MAX_QUERIES
        if too_many_ids and count_locations(self._database) <= self._max_locations:
            self._store(read_all_locations(self._database))
            return
        for answer in read_locations(self._database, ids):
            self._store(answer)

    def _store(self, answer: pa.Table) -> None:
        answer = self._better(answer)
        column = {name: _as_array(answer[name]) for name in answer.column_names}
        rows = self.locations.find(column["location_id"].to_numpy())
        self._has_better |= bool((rows < self._in_trees).any())
        mapping = self.mappings.add(column["kind"], column["build_id"], column["file"])
        frame_count = column["line"].value_lengths().to_numpy().astype(np.int32)
        names, sources, lines, start_lines = (
            column[name].flatten() for name in ("function", "source", "line", "start_line")
        )
        function = self._functions.add(names, np.repeat(mapping, frame_count), sources, start_lines)
        unnamed = UNNAMED + np.repeat(rows, frame_count)
        self.locations.append_frames(
            np.where(function >= 0, function, unnamed).astype(np.int32), lines.to_numpy(), start_lines.to_numpy()
        )
        self.locations.store(rows, column["version"].to_numpy(), mapping, column["address"].to_numpy(), frame_count)

    def _better(self, answer: pa.Table) -> pa.Table:
        """The highest version of each location that was added here, if it is better than the one stored here."""
        ids, versions = answer["location_id"].to_numpy(), answer["version"].to_numpy()
        order = np.lexsort((versions, ids))
        is_highest = np.ones(len(order), bool)
        is_highest[:-1] = ids[order][1:] != ids[order][:-1]
        order = order[is_highest]
        rows = self.locations.find(ids[order])
        order, rows = order[rows >= 0], rows[rows >= 0]
        is_better = self.locations.is_missing[rows] | (versions[order] > self.locations.version[rows])
        return answer.take(pa.array(np.sort(order[is_better]))).combine_chunks()


def _as_array(column: pa.ChunkedArray) -> pa.Array:
    chunks = column.combine_chunks()
    return pa.concat_arrays(chunks.chunks) if isinstance(chunks, pa.ChunkedArray) else chunks
