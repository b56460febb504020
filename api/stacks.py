"""What stacks are in words: the trees kept in memory, shared by all queries."""

import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from api.call_tree import CallTree, paths
from api.database import Database
from api.function_tree import NO_STACK_ROW, FunctionTree
from api.functions import Functions
from api.graph import Tree
from api.key_table import Keys, Rows
from api.locations import Locations


@dataclass(frozen=True)
class Resolved:
    """Stacks as rows of the tree of functions: `leaves` (one a stack) of `tree`."""

    leaves: Rows
    tree: Tree
    functions: Functions


@dataclass(frozen=True)
class Addresses:
    """Stacks as paths of locations: stack i is locations[first[i]] up to, without, locations[first[i + 1]], leaf first.

    It is empty where the stack ID is 0, or the stack has not arrived.
    """

    first: npt.NDArray[np.int64]  # one longer than the stacks
    locations: Rows  # rows of `kept`
    kept: Locations


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
            first, nodes = paths(np.maximum(leaves, 0), self._calls.parent, self._calls.depth)
            distinct, of = np.unique(nodes, return_inverse=True)
            locations = self._locations.rows(self._calls.location[distinct])
            return Addresses(first, locations[of], self._locations)

    def _renew(self) -> None:
        if self._calls.full:
            self._start()
        elif self._locations.refresh():
            self._functions = FunctionTree(self._calls, self._locations)

    def _start(self) -> None:
        self._calls = CallTree(self._database, self._max_nodes)
        self._locations = Locations(self._database, self._max_nodes)
        self._functions = FunctionTree(self._calls, self._locations)
