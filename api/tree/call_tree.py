"""The call tree of addresses, kept in memory: nodes are content, so what is known once is known for good."""

from typing import Any

import numpy as np
import numpy.typing as npt

from api.metrics import NODES, STACKS
from api.queries.database import Database
from api.tree.growable_column import Column
from api.tree.hash_index import Keys, KeyTable, Rows, distinct
from icestream import index_ranges

ROOT = 0
"""The row above all roots."""

IDS_A_QUERY = 20_000
QUERIES_BEFORE_SYNC = 3
"""When more would be needed than this, a table that fits is read whole instead."""

_MAX_DEPTH = 2048
"""Levels that one query looks up; what stands deeper is unresolved until the next."""

Nodes = tuple[Keys, Keys, Keys]
"""IDs, IDs of the parents, IDs of the locations; any order, repetitions allowed."""


class CallTree:
    """Nodes as columns; row 0 stands above the roots, and a parent's row is smaller than its children's.

    A node is here only with all nodes above it. For one thread at a time.
    """

    def __init__(self, database: Database, max_nodes: int) -> None:
        self._database = database
        self._max_nodes = max_nodes
        self._table = KeyTable()
        self._parent = Column(np.int32)
        self._depth = Column(np.int32)
        self._location = Column(np.uint64)
        self._append(np.zeros(1, np.uint64), [0], [0], [0])

    def __len__(self) -> int:
        return len(self._table)

    @property
    def parent(self) -> Rows:
        """(n,) rows."""
        return self._parent.values

    @property
    def depth(self) -> npt.NDArray[np.int32]:
        """(n,): 0 for row 0, 1 for roots."""
        return self._depth.values

    @property
    def location(self) -> Keys:
        """(n,) location IDs."""
        return self._location.values

    @property
    def full(self) -> bool:
        """Whether it has more nodes than it should keep; then start a new one."""
        return len(self) > self._max_nodes

    def rows(self, stack_ids: Keys) -> Rows:
        """Rows of the leaves of stacks (IDs, not 0); -1 for stacks that ClickHouse does not have whole.

        Reads what is not known yet. Raises ApiError.
        """
        rows = self._table.find(stack_ids)
        missing = np.flatnonzero(rows < 0)
        if len(missing):
            self._insert(self._read_up(distinct(stack_ids[missing])))
            rows[missing] = self._table.find(stack_ids[missing])
            NODES.set(len(self))
        unresolved = int((rows < 0).sum())
        STACKS.labels("hit").inc(len(rows) - len(missing))
        STACKS.labels("read").inc(len(missing) - unresolved)
        STACKS.labels("unresolved").inc(unresolved)
        return rows

    def _read_up(self, wanted: Keys) -> Nodes:
        """The wanted nodes and those above them, up to what is known."""
        levels: list[Nodes] = []
        seen = KeyTable()
        queries = 0
        for _ in range(_MAX_DEPTH):
            if not len(wanted):
                break
            seen.append(wanted)
            queries += -(-len(wanted) // IDS_A_QUERY)
            if queries > QUERIES_BEFORE_SYNC and self._fits():
                return self._read("", {})
            level = self._read_ids(wanted)
            levels.append(level)
            above = distinct(level[1])
            wanted = above[(self._table.find(above) < 0) & (seen.find(above) < 0)]
        return _concatenate(levels)

    def _read_ids(self, ids: Keys) -> Nodes:
        chunks = [ids[i : i + IDS_A_QUERY] for i in range(0, len(ids), IDS_A_QUERY)]
        return _concatenate(
            [self._read("WHERE node_id IN {ids:Array(UInt64)}", {"ids": id_list(chunk)}) for chunk in chunks]
        )

    def _read(self, where: str, parameters: dict[str, Any]) -> Nodes:
        answer = self._database.table(f"SELECT node_id, parent_id, location_id FROM nodes {where}", parameters)
        ids, parents, locations = (column.to_numpy() for column in answer.columns)
        return ids, parents, locations

    def _fits(self) -> bool:
        return int(self._database.table("SELECT count() FROM nodes").column(0)[0].as_py()) <= self._max_nodes

    def _insert(self, nodes: Nodes) -> None:
        """Adds level by level, below what is known."""
        ids, parents, locations = nodes
        order = np.argsort(parents, kind="stable")
        ids, parents, locations = ids[order], parents[order], locations[order]
        above, first, many = np.unique(parents, return_index=True, return_counts=True)
        level = np.flatnonzero(self._table.find(above) >= 0)
        for _ in range(_MAX_DEPTH):
            if not len(level):
                break
            children = index_ranges.expand(first[level], many[level])
            level_ids, index = np.unique(ids[children], return_index=True)
            new = self._table.find(level_ids) < 0
            level_ids, children = level_ids[new], children[index[new]]
            parent = self._table.find(parents[children])
            self._append(level_ids, parent, self.depth[parent] + 1, locations[children])
            level = _find(above, level_ids)

    def _append(self, ids: Keys, parent: npt.ArrayLike, depth: npt.ArrayLike, location: npt.ArrayLike) -> None:
        self._table.append(ids)
        self._parent.extend(parent)
        self._depth.extend(depth)
        self._location.extend(location)


def id_list(ids: Keys) -> str:
    """A value for a parameter of type Array(UInt64); as text, which the client takes as it is, ten times as fast."""
    return f"[{','.join(map(str, ids.tolist()))}]"


def paths(leaves: Rows, parent: Rows, depth: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int64], Rows]:
    """Rows from each leaf up to its root: path i is rows[first[i]] up to, without, rows[first[i + 1]]."""
    lengths = depth[leaves].astype(np.int64)
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    rows = np.empty(first[-1], np.int32)
    at, place = leaves[lengths > 0], first[:-1][lengths > 0]
    while len(at):
        rows[place] = at
        at, place = parent[at], place + 1
        below_root = at != ROOT
        at, place = at[below_root], place[below_root]
    return first, rows


def _find(where: Keys, what: Keys) -> npt.NDArray[np.intp]:
    """Positions in `where` (sorted) of those of `what` that are in it."""
    at = np.minimum(np.searchsorted(where, what), max(len(where) - 1, 0))
    found: npt.NDArray[np.intp] = at[where[at] == what]
    return found


def _concatenate(parts: list[Nodes]) -> Nodes:
    ids, parents, locations = (np.concatenate(column) for column in zip(*parts, strict=True))
    return ids, parents, locations
