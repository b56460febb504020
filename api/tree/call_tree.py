"""The call tree of locations, kept in memory. Node IDs are hashes of content, so nodes never change."""

import numpy as np
import numpy.typing as npt

from api.array_types import Depths, Ids, Rows
from api.metrics import NODES, STACKS
from api.queries.database import Database
from api.queries.selection import id_lists
from api.queries.stacks.nodes import ROWS_FOR_ONE, StoredNodes, concatenate, count_nodes, read_all_nodes, read_nodes
from api.tree.distinct import distinct_ids
from api.tree.growable_column import GrowableColumn
from api.tree.hash_index import HashIndex
from icestream.columns import index_ranges, sorted_keys

ROOT = 0
"""The row above the outermost frames of all stacks."""

_MAX_DEPTH = 2048
"""Levels that one query looks up. Stacks that are deeper stay unresolved until the next query."""

_NODES_PER_STACK = 10
"""If there is more than one stack for this many nodes, most nodes belong to them, so all nodes are added."""


class CallTree:
    """Nodes as columns. Row 0 is the root, and a parent's row is smaller than its children's.

    A node is only added after all nodes above it. For one thread at a time; others may add nodes during a query.
    """

    def __init__(self, database: Database, max_nodes: int) -> None:
        self._database = database
        self._max_nodes = max_nodes
        self._index = HashIndex()
        self._parent = GrowableColumn(np.int32)
        self._depth = GrowableColumn(np.int32)
        self._location = GrowableColumn(np.uint64)
        self._append(np.zeros(1, np.uint64), [0], [0], [0])

    def __len__(self) -> int:
        return len(self._index)

    @property
    def ids(self) -> Ids:
        """(n,) node IDs; 0 for the root."""
        return self._index.keys

    @property
    def parent(self) -> Rows:
        """(n,) rows."""
        return self._parent.values

    @property
    def depth(self) -> Depths:
        """(n,): 0 for the root."""
        return self._depth.values

    @property
    def location(self) -> Ids:
        """(n,) location IDs."""
        return self._location.values

    @property
    def full(self) -> bool:
        """Whether it has more nodes than it should keep, so that a new tree should replace it."""
        return len(self) > self._max_nodes

    def rows(self, stack_ids: Ids) -> Rows:
        """Rows of the leaves of stacks (IDs other than 0); -1 if ClickHouse does not have all nodes of a stack.

        Reads the nodes that are not known yet. Raises ApiError.
        """
        rows = self._index.find(stack_ids)
        missing = np.flatnonzero(rows < 0)
        if len(missing):
            self._insert(self._read_with_parents(distinct_ids(stack_ids[missing])))
            rows[missing] = self._index.find(stack_ids[missing])
            NODES.set(len(self))
        unresolved = int((rows < 0).sum())
        STACKS.labels("hit").inc(len(rows) - len(missing))
        STACKS.labels("read").inc(len(missing) - unresolved)
        STACKS.labels("unresolved").inc(unresolved)
        return rows

    def _read_with_parents(self, ids: Ids) -> StoredNodes:
        """Reads these nodes and all unknown nodes above them; at least one ID.

        Level by level, unless reading the whole table is less work.
        """
        stored = count_nodes(self._database)
        fits = stored <= self._max_nodes
        if fits and len(ids) * ROWS_FOR_ONE >= stored:
            return self._choose(read_all_nodes(self._database), ids)
        levels: list[StoredNodes] = []
        requested = HashIndex()
        queries = 0
        wanted = ids
        for _ in range(_MAX_DEPTH):
            if not len(wanted):
                break
            requested.append(wanted)
            queries += id_lists.count_queries(wanted)
            if queries > id_lists.MAX_QUERIES and fits:
                return self._choose(read_all_nodes(self._database), ids)
            level = read_nodes(self._database, wanted)
            levels.append(level)
            parents = distinct_ids(level.parent_ids)
            wanted = parents[(self._index.find(parents) < 0) & (requested.find(parents) < 0)]
        return concatenate(levels)

    @staticmethod
    def _choose(nodes: StoredNodes, ids: Ids) -> StoredNodes:
        """Those of all nodes that are to be added. Adding one is ten times the work of reading it."""
        return nodes if len(ids) * _NODES_PER_STACK > len(nodes.ids) else _with_parents(nodes, ids)

    def _insert(self, nodes: StoredNodes) -> None:
        """Adds nodes level by level, below those that are known."""
        order = np.argsort(nodes.parent_ids, kind="stable")
        ids, parent_ids, locations = nodes.ids[order], nodes.parent_ids[order], nodes.location_ids[order]
        parents, first_child, child_count = np.unique(parent_ids, return_index=True, return_counts=True)
        level = np.flatnonzero(self._index.find(parents) >= 0)  # indexes into `parents`
        for _ in range(_MAX_DEPTH):
            if not len(level):
                break
            children = index_ranges.expand(first_child[level], child_count[level])
            level_ids, index = np.unique(ids[children], return_index=True)
            new = self._index.find(level_ids) < 0
            level_ids, children = level_ids[new], children[index[new]]
            parent = self._index.find(parent_ids[children])
            self._append(level_ids, parent, self.depth[parent] + 1, locations[children])
            level = sorted_keys.find(parents, level_ids)
            level = level[level >= 0]

    def _append(self, ids: Ids, parent: npt.ArrayLike, depth: npt.ArrayLike, location: npt.ArrayLike) -> None:
        self._index.append(ids)
        self._parent.extend(parent)
        self._depth.extend(depth)
        self._location.extend(location)


def _with_parents(nodes: StoredNodes, ids: Ids) -> StoredNodes:
    """Those with these IDs, and those above them. `nodes`: in ascending order of their IDs."""
    chosen = np.zeros(len(nodes.ids), bool)
    while len(ids):
        rows = sorted_keys.find(nodes.ids, ids)
        rows = rows[rows >= 0]
        rows = rows[~chosen[rows]]
        chosen[rows] = True
        ids = distinct_ids(nodes.parent_ids[rows])
    return StoredNodes(nodes.ids[chosen], nodes.parent_ids[chosen], nodes.location_ids[chosen])


def paths_to_root(leaves: Rows, parent: Rows, depth: Depths) -> tuple[npt.NDArray[np.int64], Rows]:
    """Returns `start` and `rows`: the path of leaf i is rows[start[i]:start[i + 1]], leaf first, without the root."""
    lengths = depth[leaves].astype(np.int64)
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    rows = np.empty(start[-1], np.int32)
    current, position = leaves[lengths > 0], start[:-1][lengths > 0]
    while len(current):
        rows[position] = current
        current, position = parent[current], position + 1
        below_root = current != ROOT
        current, position = current[below_root], position[below_root]
    return start, rows
