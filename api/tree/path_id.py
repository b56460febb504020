"""Names for nodes that stay the same in every answer: 32 bits of the path from the root.

A function's number is the CRC-32 of the UTF-8 text `name NUL module NUL file`. The root's path ID is 0; a child's is
its parent's times 16777619 (modulo 2^32), XOR its function's number. api/page/graph/tree.js does the same.
"""

from itertools import pairwise
from zlib import crc32

import numpy as np
import numpy.typing as npt

from api.tree.functions import FunctionRows
from api.tree.graph import Graph
from api.tree.levels import level_bounds

_FACTOR = np.uint32(16777619)


def path_ids(graph: Graph, functions: FunctionRows) -> npt.NDArray[np.uint32]:
    """Returns the path ID of each node (n,)."""
    used, function = np.unique(graph.function, return_inverse=True)
    number = np.array([_number(functions, row) for row in used.tolist()], np.uint32)[function]
    ids = np.zeros(len(graph.parent), np.uint32)
    for start, end in pairwise(level_bounds(graph.parent)[1:]):
        ids[start:end] = ids[graph.parent[start:end]] * _FACTOR ^ number[start:end]
    return ids


def find_path(graph: Graph, functions: FunctionRows, path_id: int) -> int:
    """Returns the first node in level order with this path ID, or the root, 0, if there is none."""
    return int(np.argmax(path_ids(graph, functions) == path_id))


def _number(functions: FunctionRows, row: int) -> int:
    function = functions[row]
    return crc32(f"{function.name}\0{function.module}\0{function.file}".encode())
