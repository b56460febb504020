"""A tree of functions that grows: siblings of one function are one node."""

import numpy as np

from api.array_types import Rows
from api.tree.functions import TOTAL
from api.tree.graph import Tree
from api.tree.growable_column import GrowableColumn
from api.tree.hash_index import HashIndex


class GrowingTree:
    """Nodes as columns. Row 0 is the root, and every row comes after its parent. For one thread at a time."""

    def __init__(self) -> None:
        self._index = HashIndex()
        self._parent = GrowableColumn(np.int32)
        self._function = GrowableColumn(np.int32)
        self._depth = GrowableColumn(np.int32)
        self._repeats = GrowableColumn(np.int8)
        self._index.append(np.array([2**64 - 1], np.uint64))
        self._parent.extend([0])
        self._function.extend([TOTAL])
        self._depth.extend([0])
        self._repeats.extend([0])

    @property
    def tree(self) -> Tree:
        """The nodes so far. It stays as it is when others are added."""
        return Tree(self._parent.values, self._function.values, self._depth.values, self._repeats.values)

    def children(self, parent: Rows, function: Rows) -> Rows:
        """Rows of the children of `parent` with these functions, after adding those that are missing."""
        keys = parent.astype(np.uint64) << np.uint64(32) | function.astype(np.uint64)
        rows = self._index.add(keys)
        new_keys = self._index.keys[len(self._parent) :]
        new_parent = (new_keys >> np.uint64(32)).astype(np.int32)
        self._parent.extend(new_parent)
        self._function.extend((new_keys & np.uint64(0xFFFFFFFF)).astype(np.int32))
        self._depth.extend(self._depth.values[new_parent] + 1)
        self._repeats.extend(np.full(len(new_parent), -1, np.int8))
        return rows

    def child(self, parent: int, function: int) -> int:
        """As `children`, of one node."""
        return int(self.children(np.array([parent], np.int32), np.array([function], np.int32))[0])
