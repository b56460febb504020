"""What stacks are in words: the trees kept in memory, shared by all queries."""

import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from api.queries.database import Database
from api.tree.call_tree import CallTree, paths
from api.tree.function_tree import NO_STACK_ROW, FunctionTree
from api.tree.functions import Functions
from api.tree.graph import Tree
from api.tree.hash_index import Keys, Rows
from api.tree.locations import Locations


@dataclass(frozen=True)
class Resolved:
    """Stacks as rows of the tree of functions: `leaves` (one a stack) of `tree`."""

    leaves: Rows
    tree: Tree
    functions: Functions


@dataclass(frozen=True)
class Addresses:
    """Stacks as paths of locations: stack i is path[start[i]] up to, without, path[start[i + 1]], leaf first.

    It is empty where the stack ID is 0, or the stack has not arrived. Location columns as of Locations.
    """

    start: npt.NDArray[np.int64]  # one longer than the stacks
    path: npt.NDArray[np.intp]  # rows of the columns of locations
    rows: Rows  # of Locations
    mapping: Rows
    address: Keys
    first: npt.NDArray[np.int64]
    many: npt.NDArray[np.int32]
    frame_function: Rows
    frame_line: npt.NDArray[np.uint32]
    functions: Functions


class Stacks:
    """May be used by many threads; one at a time looks stacks up."""

    def __init__(self, database: Database, max_nodes: int) -> None:
        self._database = database
        self._max_nodes = max_nodes
        self._lock = threading.Lock()
        self._start()

    @property
    def cached_nodes(self) -> int:
        return len(self._calls)

    def functions_of(self, stack_ids: Keys) -> Resolved:
        """Raises ApiError."""
        with self._lock:
            self._renew()
            there = stack_ids != 0
            leaves = np.full(len(stack_ids), NO_STACK_ROW, np.int32)
            leaves[there] = self._functions.rows(self._calls.rows(stack_ids[there]))
            return Resolved(leaves, self._functions.tree, self._locations.functions)

    def addresses_of(self, stack_ids: Keys) -> Addresses:
        """Raises ApiError."""
        with self._lock:
            self._renew()
            leaves = self._calls.rows(stack_ids)  # 0, no stack, is the row above the roots: an empty path
            start, nodes = paths(np.maximum(leaves, 0), self._calls.parent, self._calls.depth)
            distinct, of = np.unique(nodes, return_inverse=True)
            kept = self._locations
            rows = kept.rows(self._calls.location[distinct])
            return Addresses(
                start, of, rows, kept.mapping[rows], kept.address[rows], kept.first[rows], kept.many[rows],
                kept.frame_function, kept.frame_line, kept.functions,
            )  # fmt: skip

    def _renew(self) -> None:
        if self._calls.full:
            self._start()
        elif self._locations.refresh():
            self._functions = FunctionTree(self._calls, self._locations)

    def _start(self) -> None:
        self._calls = CallTree(self._database, self._max_nodes)
        self._locations = Locations(self._database, self._max_nodes)
        self._functions = FunctionTree(self._calls, self._locations)
