"""Paths of a graph's nodes, as columns: a few thousand at a time, because all of them may be more than memory holds."""

import itertools
from collections.abc import Iterator

import numpy as np

from api.array_types import Rows
from api.tree.levels import level_bounds

_PATHS = 5_000


def paths_from_root(rows: Rows, parent: Rows) -> Iterator[list[list[int]]]:
    """Yields, in parts, the path of each of `rows`: the rows from a root's child down to it. `parent` is a Graph's."""
    bounds = level_bounds(parent)
    depth = np.repeat(np.arange(len(bounds) - 1, dtype=np.int32), np.diff(bounds))
    for first in range(0, len(rows), _PATHS):
        yield _paths(rows[first : first + _PATHS], parent, depth)


def _paths(rows: Rows, parent: Rows, depth: Rows) -> list[list[int]]:
    ends = np.cumsum(depth[rows])
    above = np.empty(int(ends[-1]), np.int32)
    current, position = rows, ends - 1
    while len(current):
        below_root = current > 0
        current, position = current[below_root], position[below_root]
        above[position] = current
        current, position = parent[current], position - 1
    flat, bounds = above.tolist(), [0, *ends.tolist()]
    return [flat[start:end] for start, end in itertools.pairwise(bounds)]
