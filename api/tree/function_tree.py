"""The call tree of functions, derived from the one of locations.

Siblings of one function are joined, and inlined frames expanded. It grows as queries need it, and a new one replaces it
when lines of a location get better.
"""

import numpy as np

from api.array_types import Rows
from api.tree.call_tree import CallTree
from api.tree.frame_functions import UNNAMED
from api.tree.functions import NO_STACK, TOTAL, UNRESOLVED
from api.tree.graph import Tree
from api.tree.growable_column import GrowableColumn
from api.tree.hash_index import HashIndex
from api.tree.levels import order_by_depth, rows_above
from api.tree.location_cache import LocationCache

ROOT_ROW, NO_STACK_ROW, UNRESOLVED_ROW = range(3)


class FunctionTree:
    """Nodes as columns. Row 0 is the root, and every row comes after its parent. For one thread at a time."""

    def __init__(self, call_tree: CallTree, location_cache: LocationCache) -> None:
        self._call_tree = call_tree
        self._location_cache = location_cache
        self._row_of_call = np.full(len(call_tree), -1, np.int32)  # row of the call tree -> row here
        self._row_of_call[0] = ROOT_ROW
        self._index = HashIndex()
        self._parent = GrowableColumn(np.int32)
        self._function = GrowableColumn(np.int32)
        self._depth = GrowableColumn(np.int32)
        self._parent.extend([0])
        self._function.extend([TOTAL])
        self._depth.extend([0])
        self._index.append(np.array([2**64 - 1], np.uint64))
        for function in (NO_STACK, UNRESOLVED):
            self._children(np.zeros(1, np.int32), np.array([function], np.int32))

    @property
    def tree(self) -> Tree:
        """The nodes so far. It stays as it is when others are added."""
        return Tree(self._parent.values, self._function.values, self._depth.values)

    def rows(self, call_rows: Rows) -> Rows:
        """Rows of the innermost frames of nodes of the call tree; UNRESOLVED_ROW where `call_rows` is -1.

        Raises ApiError.
        """
        known = len(self._row_of_call)
        if known < len(self._call_tree):
            unknown = np.full(len(self._call_tree) - known, -1, np.int32)
            self._row_of_call = np.concatenate([self._row_of_call, unknown])
        self._add(call_rows[call_rows >= 0])
        return np.where(call_rows >= 0, self._row_of_call[call_rows], np.int32(UNRESOLVED_ROW))

    def _add(self, call_rows: Rows) -> None:
        """Adds nodes of the call tree and all above them, level by level."""
        calls = rows_above(call_rows, self._call_tree.parent, self._row_of_call >= 0)
        if not len(calls):
            return
        locations = self._location_cache.rows(self._call_tree.location[calls])
        depth = self._call_tree.depth[calls]
        order = order_by_depth(depth)
        calls, locations = calls[order], locations[order]
        for level in np.split(np.arange(len(order)), np.flatnonzero(np.diff(depth[order])) + 1):
            parents = self._row_of_call[self._call_tree.parent[calls[level]]]
            self._row_of_call[calls[level]] = self._innermost(parents, locations[level])

    def _innermost(self, parents: Rows, locations: Rows) -> Rows:
        """The innermost frames of locations that are called from `parents`, one location for each parent."""
        columns = self._location_cache.locations
        frame_count = columns.frame_count[locations]
        unnamed = frame_count == 0
        rows = parents.copy()
        rows[unnamed] = self._children(rows[unnamed], (UNNAMED + locations[unnamed]).astype(np.int32))
        end = columns.first_frame[locations] + frame_count
        for step in range(1, int(frame_count.max(initial=0)) + 1):  # outermost first
            has_frame = frame_count >= step
            rows[has_frame] = self._children(rows[has_frame], columns.frame_function[end[has_frame] - step])
        return rows

    def _children(self, parent: Rows, function: Rows) -> Rows:
        """Rows of the children of `parent` with these functions, after adding those that are missing."""
        keys = parent.astype(np.uint64) << np.uint64(32) | function.astype(np.uint64)
        rows = self._index.add(keys)
        new_keys = self._index.keys[len(self._parent) :]
        new_parent = (new_keys >> np.uint64(32)).astype(np.int32)
        self._parent.extend(new_parent)
        self._function.extend((new_keys & np.uint64(0xFFFFFFFF)).astype(np.int32))
        self._depth.extend(self._depth.values[new_parent] + 1)
        return rows
