"""Locations with their lines, read from ClickHouse and kept until better lines come.

Lines get better (a higher version) when symbols arrive, so that a location without symbols may get them at any time:
`refresh` checks whether the table has changed, and reads what is newer in it.
"""

import time

import numpy as np
import pyarrow as pa

from api.array_types import Ids, Rows
from api.queries.database import Database
from api.queries.selection import id_lists
from api.queries.stacks.locations import (
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
    """For one thread at a time; others may use it during a query."""

    def __init__(self, database: Database, max_locations: int) -> None:
        self._database = database
        self._max_locations = max_locations
        self._table_state: TableState | None = None
        self._next_refresh = 0.0  # time.monotonic()
        self.mappings = Mappings()
        self.locations = Locations()
        self._functions = Functions(self.mappings)
        self.frame_functions = FrameFunctions(self._functions, self.locations, self.mappings)
        self._has_better = False
        """Whether a location that may be in a tree has got better lines that `refresh` has not told."""
        self._looking = False
        """Whether a thread looks for better lines."""

    def rows(self, location_ids: Ids) -> Rows:
        """Rows of `locations`, after reading the missing ones from ClickHouse. Raises ApiError."""
        rows = self.locations.find(location_ids)
        known = rows >= 0
        known[known] = ~self.locations.is_missing[rows[known]]
        answers = self._read(distinct_ids(location_ids[~known]))
        in_trees = len(self.locations)  # only now: other threads have added some meanwhile
        rows = self.locations.add(location_ids)
        self._store(answers, in_trees)
        return rows

    def refresh(self) -> bool:
        """Reads better lines, and returns whether any location has got some since the last call. Raises ApiError."""
        if not self._looking:
            self._looking = True
            try:
                self._look_for_better()
            finally:
                self._looking = False
        has_better, self._has_better = self._has_better, False
        return has_better

    def _look_for_better(self) -> None:
        started = time.monotonic()
        if started < self._next_refresh or not len(self.locations):
            return
        state = read_table_state(self._database)
        if state == self._table_state:
            return
        ids, versions = read_versions(self._database)
        rows = self.locations.find(ids)
        ids, versions, rows = ids[rows >= 0], versions[rows >= 0], rows[rows >= 0]
        better = ids[versions > self.locations.version[rows]]
        missing = self.locations.ids[self.locations.is_missing]
        answers = self._read(distinct_ids(np.concatenate([better, missing])))
        self._store(answers, len(self.locations))
        self._table_state = state
        now = time.monotonic()
        self._next_refresh = now + min(_PAUSE_FACTOR * (now - started), _MAX_PAUSE_S)

    def _read(self, ids: Ids) -> list[pa.Table]:
        too_many_ids = id_lists.count_queries(ids) > id_lists.MAX_QUERIES
        if too_many_ids and count_locations(self._database) <= self._max_locations:
            return [read_all_locations(self._database)]
        return list(read_locations(self._database, ids))

    def _store(self, answers: list[pa.Table], in_trees: int) -> None:
        """Stores what is better than before. Rows from `in_trees` on are in no tree yet."""
        for answer in answers:
            self._store_better(self._better(answer), in_trees)

    def _store_better(self, answer: pa.Table, in_trees: int) -> None:
        column = {name: _as_array(answer[name]) for name in answer.column_names}
        rows = self.locations.find(column["location_id"].to_numpy())
        self._has_better |= bool((rows < in_trees).any())
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
