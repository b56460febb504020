"""Turns stack IDs into functions or addresses, with trees that stay in memory for all queries."""

import itertools
import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from api.array_types import Depths, Ids, Rows
from api.queries.database import Database
from api.queries.stacks.nodes import StoredNodes
from api.tree.call_tree import ROOT, CallTree, paths_to_root
from api.tree.frame_functions import FrameFunctions
from api.tree.function_tree import NO_STACK_ROW, FunctionTree
from api.tree.functions import FunctionRows
from api.tree.granularity import FineFrames, Granularity
from api.tree.graph import Tree
from api.tree.levels import rows_above
from api.tree.location_cache import LocationCache
from api.tree.mappings import Mappings


@dataclass(frozen=True)
class FunctionStacks:
    """Stacks in a tree of functions (or lines, addresses...): `leaves` has a row of `tree` for each stack."""

    leaves: Rows
    tree: Tree
    functions: FunctionRows
    whole_functions: FunctionRows  # which function a row is, or a part of
    mappings: Mappings


@dataclass(frozen=True)
class AddressStacks:
    """Stacks as paths of locations. The columns of the locations that they have are as in Locations."""

    leaves: Rows  # of each stack, a row of the call tree; the root's if there is none, or it has not arrived
    parent: Rows  # of the call tree
    depth: Depths  # of the call tree
    location_number: Rows  # of the call tree: 1 + index into the location columns; 0 for nodes of other stacks
    location: Rows  # rows of Locations, each once
    mapping: Rows
    address: npt.NDArray[np.uint64]
    first_frame: npt.NDArray[np.int64]
    frame_count: Rows
    frame_function: Rows
    frame_line: npt.NDArray[np.uint32]
    frame_start_line: npt.NDArray[np.uint32]
    functions: FrameFunctions
    mappings: Mappings

    def paths(self, first: int, end: int) -> list[list[int]]:
        """The paths of some of the stacks, as numbers of locations, leaf first; [] without a stack."""
        start, nodes = paths_to_root(self.leaves[first:end], self.parent, self.depth)
        path, bounds = self.location_number[nodes].tolist(), start.tolist()
        return [path[begin:until] for begin, until in itertools.pairwise(bounds)]


class _Memory:
    """What is known of stacks. Queries that began with it end with it, also when another one has replaced it."""

    def __init__(self, database: Database, max_nodes: int) -> None:
        self.call_tree = CallTree(database, max_nodes)
        self.location_cache = LocationCache(database, max_nodes)
        self.derive_functions()

    def derive_functions(self) -> None:
        self.function_tree = FunctionTree(self.call_tree, self.location_cache)


class StackCache:
    """May be used by many threads. They look stacks up one after the other, but none waits for a query of another: its
    lock is free while a query runs."""

    def __init__(self, database: Database, max_nodes: int) -> None:
        self._lock = threading.Lock()
        self._database = database.letting_go_of(self._lock)
        self._max_nodes = max_nodes
        self._memory = _Memory(self._database, max_nodes)

    def functions_of(self, stack_ids: Ids, by: Granularity = Granularity.FUNCTION) -> FunctionStacks:
        """The stacks' functions; or lines or addresses, which are looked up anew for each query. Raises ApiError."""
        with self._lock:
            memory = self._renewed()
            calls, cache, tree = memory.call_tree, memory.location_cache, memory.function_tree
            functions = cache.frame_functions
            if not by.is_fine:
                return FunctionStacks(_leaves(calls, tree, stack_ids), tree.tree, functions, functions, cache.mappings)
            frames = FineFrames(by, functions, cache.locations)
            tree = FunctionTree(calls, cache, frames, with_addresses=by is Granularity.ADDRESS)
            leaves = _leaves(calls, tree, stack_ids)
            return FunctionStacks(leaves, tree.tree, frames, frames.whole_functions, cache.mappings)

    def addresses_of(self, stack_ids: Ids) -> AddressStacks:
        """The stacks as paths of locations. Raises ApiError."""
        with self._lock:
            memory = self._renewed()
            calls, cache = memory.call_tree, memory.location_cache
            leaves = np.maximum(calls.rows(stack_ids), ROOT)  # stack ID 0 is the root's: an empty path
            is_root = np.zeros(len(calls), bool)
            is_root[ROOT] = True
            nodes = rows_above(leaves, calls.parent, is_root)
            row_of_node = cache.rows(calls.location[nodes])
            columns = cache.locations
            number_of_row = np.zeros(len(columns), np.int32)
            number_of_row[row_of_node] = 1  # many nodes have one location
            rows = np.flatnonzero(number_of_row).astype(np.int32)
            number_of_row[rows] = np.arange(1, len(rows) + 1)
            location_number = np.zeros(len(calls), np.int32)
            location_number[nodes] = number_of_row[row_of_node]
            return AddressStacks(
                leaves=leaves,
                parent=calls.parent,
                depth=calls.depth,
                location_number=location_number,
                location=rows,
                mapping=columns.mapping[rows],
                address=columns.address[rows],
                first_frame=columns.first_frame[rows],
                frame_count=columns.frame_count[rows],
                frame_function=columns.frame_function,
                frame_line=columns.frame_line,
                frame_start_line=columns.frame_start_line,
                functions=cache.frame_functions,
                mappings=cache.mappings,
            )

    def nodes_of(self, stack_ids: Ids) -> StoredNodes:
        """The nodes of the stacks that are known as a whole, each once. Raises ApiError."""
        with self._lock:
            calls = self._renewed().call_tree
            leaves = np.maximum(calls.rows(stack_ids), ROOT)
            is_root = np.zeros(len(calls), bool)
            is_root[ROOT] = True
            nodes = rows_above(leaves, calls.parent, is_root)
            return StoredNodes(calls.ids[nodes], calls.ids[calls.parent[nodes]], calls.location[nodes])

    def _renewed(self) -> _Memory:
        """Starts anew if the call tree is full, and derives functions again if names got better."""
        memory = self._memory
        if memory.call_tree.full:
            memory = self._memory = _Memory(self._database, self._max_nodes)
        elif memory.location_cache.refresh():
            memory.derive_functions()
        return memory


def _leaves(calls: CallTree, tree: FunctionTree, stack_ids: Ids) -> Rows:
    has_stack = stack_ids != 0
    leaves = np.full(len(stack_ids), NO_STACK_ROW, np.int32)
    leaves[has_stack] = tree.rows(calls.rows(stack_ids[has_stack]))
    return leaves
