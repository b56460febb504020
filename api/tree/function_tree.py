"""The call tree of functions, derived from the one of addresses.

Siblings of one function are joined, inlined frames expanded. It is filled as far as queries need it, and made anew when
lines of a location get better.
"""

import numpy as np

from api.tree.call_tree import CallTree
from api.tree.functions import NO_STACK, TOTAL, UNNAMED, UNRESOLVED
from api.tree.graph import Tree, by_depth, rows_above
from api.tree.growable_column import Column
from api.tree.hash_index import KeyTable, Rows
from api.tree.locations import Locations

ROOT_ROW, NO_STACK_ROW, UNRESOLVED_ROW = range(3)


class FunctionTree:
    """Nodes as columns; row 0 is the root, every row comes after its parent. For one thread at a time."""

    def __init__(self, calls: CallTree, locations: Locations) -> None:
        self._calls = calls
        self._locations = locations
        self._of = np.full(len(calls), -1, np.int32)  # row of the call tree -> row here
        self._of[0] = ROOT_ROW
        self._table = KeyTable()
        self._parent = Column(np.int32)
        self._function = Column(np.int32)
        self._depth = Column(np.int32)
        self._parent.extend([0])
        self._function.extend([TOTAL])
        self._depth.extend([0])
        self._table.append(np.array([2**64 - 1], np.uint64))
        self._nodes(np.zeros(1, np.int32), np.array([NO_STACK], np.int32))
        self._nodes(np.zeros(1, np.int32), np.array([UNRESOLVED], np.int32))

    @property
    def tree(self) -> Tree:
        """The nodes so far; stays as it is while others are added."""
        return Tree(self._parent.values, self._function.values, self._depth.values)

    def rows(self, call_rows: Rows) -> Rows:
        """Rows of the innermost frames of nodes of the call tree; of UNRESOLVED_ROW where these are -1."""
        known = len(self._of)
        if known < len(self._calls):
            self._of = np.concatenate([self._of, np.full(len(self._calls) - known, -1, np.int32)])
        self._fill(call_rows[call_rows >= 0])
        return np.where(call_rows >= 0, self._of[call_rows], np.int32(UNRESOLVED_ROW))

    def _fill(self, call_rows: Rows) -> None:
        wanted = rows_above(call_rows, self._calls.parent, self._of >= 0)
        if not len(wanted):
            return
        locations = self._locations.rows(self._calls.location[wanted])
        depth = self._calls.depth[wanted]
        order = by_depth(depth)
        wanted, locations = wanted[order], locations[order]
        for level in np.split(np.arange(len(order)), np.flatnonzero(np.diff(depth[order])) + 1):
            self._of[wanted[level]] = self._below(self._of[self._calls.parent[wanted[level]]], locations[level])

    def _below(self, rows: Rows, locations: Rows) -> Rows:
        """The innermost frames of locations called from `rows`, one location each."""
        many = self._locations.many[locations]
        bare = many == 0
        rows = rows.copy()
        rows[bare] = self._nodes(rows[bare], (UNNAMED + locations[bare]).astype(np.int32))
        first = self._locations.first[locations]
        for step in range(1, int(many.max(initial=0)) + 1):  # outermost first
            has = many >= step
            rows[has] = self._nodes(rows[has], self._locations.frame_function[first[has] + many[has] - step])
        return rows

    def _nodes(self, parent: Rows, function: Rows) -> Rows:
        keys = parent.astype(np.uint64) << np.uint64(32) | function.astype(np.uint64)
        rows = self._table.add(keys)
        fresh = self._table.keys[len(self._parent) :]
        fresh_parent = (fresh >> np.uint64(32)).astype(np.int32)
        self._parent.extend(fresh_parent)
        self._function.extend((fresh & np.uint64(0xFFFFFFFF)).astype(np.int32))
        self._depth.extend(self._depth.values[fresh_parent] + 1)
        return rows
