"""The call tree of functions, derived from the one of locations.

Siblings of one function are joined, and inlined frames expanded. It grows as queries need it, and a new one replaces it
when lines of a location get better.
"""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from api.array_types import Rows
from api.tree.call_tree import CallTree
from api.tree.frame_functions import UNNAMED
from api.tree.functions import NO_STACK, UNRESOLVED
from api.tree.graph import Tree
from api.tree.growing_tree import GrowingTree
from api.tree.levels import rows_above, stable_order
from api.tree.location_cache import LocationCache

ROOT_ROW, NO_STACK_ROW, UNRESOLVED_ROW = range(3)


class FrameNumbers(Protocol):
    """Says what a frame is in a tree: by default its function."""

    def __call__(self, frames: npt.NDArray[np.int64], locations: Rows) -> Rows:
        """Numbers of frames (rows of the frame columns of Locations) of `locations`."""


class FunctionTree:
    """Nodes as of GrowingTree. For one thread at a time; others may add nodes during a query."""

    def __init__(
        self,
        call_tree: CallTree,
        location_cache: LocationCache,
        frame_numbers: FrameNumbers | None = None,
        with_addresses: bool = False,
    ) -> None:
        """`with_addresses`: whether each location without symbols is a function, or all of a module are one."""
        self._call_tree = call_tree
        self._location_cache = location_cache
        self._frame_numbers = frame_numbers or self._functions_of
        self._with_addresses = with_addresses
        self._row_of_call = np.full(len(call_tree), -1, np.int32)  # row of the call tree -> row here
        self._row_of_call[0] = ROOT_ROW
        self._nodes = GrowingTree()
        for function in (NO_STACK, UNRESOLVED):
            self._nodes.child(ROOT_ROW, function)

    @property
    def tree(self) -> Tree:
        """The nodes so far. It stays as it is when others are added."""
        return self._nodes.tree

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
        if (self._row_of_call[call_rows] >= 0).all():  # then those above them are known, too
            return
        calls = rows_above(call_rows, self._call_tree.parent, self._row_of_call >= 0)
        if not len(calls):
            return
        locations = self._location_cache.rows(self._call_tree.location[calls])
        depth = self._call_tree.depth[calls]
        order = stable_order(depth)
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
            numbers = self._frame_numbers(end[has_frame] - step, locations[has_frame])
            rows[has_frame] = self._children(rows[has_frame], numbers)
        return rows

    def _children(self, parents: Rows, numbers: Rows) -> Rows:
        if not self._with_addresses:
            numbers = self._location_cache.frame_functions.without_addresses(numbers)
        return self._nodes.children(parents, numbers)

    def _functions_of(self, frames: npt.NDArray[np.int64], locations: Rows) -> Rows:
        return self._location_cache.locations.frame_function[frames]
