"""Paths of a graph's nodes, as columns: a few thousand at a time, because all of them may be more than memory holds."""

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from api.array_types import Rows
from api.tree.levels import level_bounds

_PATHS = 5_000


def paths_from_root(rows: Rows, parent: Rows, frame: npt.NDArray[np.integer]) -> Iterator[list[list[int]]]:
    """Yields, in parts, the path of each of `rows`: `frame` of the nodes from a root's child down to it. `parent` is a
    Graph's, and `frame` has a number for each node."""
    bounds = level_bounds(parent)
    depth = np.repeat(np.arange(len(bounds) - 1, dtype=np.int32), np.diff(bounds))
    for first in range(0, len(rows), _PATHS):
        nodes, ends = _nodes(rows[first : first + _PATHS], parent, depth)
        flat, bounds = frame[nodes].tolist(), [0, *ends.tolist()]
        yield [flat[start:end] for start, end in itertools.pairwise(bounds)]


def _nodes(rows: Rows, parent: Rows, depth: Rows) -> tuple[Rows, npt.NDArray[np.int64]]:
    """The nodes of all paths, one path after the other, and where each path ends."""
    ends = np.cumsum(depth[rows], dtype=np.int64)
    nodes = np.empty(int(ends[-1]), np.int32)
    current, position = rows, ends - 1
    while len(current):
        below_root = current > 0
        current, position = current[below_root], position[below_root]
        nodes[position] = current
        current, position = parent[current], position - 1
    return nodes, ends
