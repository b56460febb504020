"""Arithmetic on trees as columns: levels, ancestors, depth-first order."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from api.array_types import Depths, Rows


def level_bounds(parent: Rows) -> list[int]:
    """Bounds of the levels of a tree in level order, whose root's parent is -1: level i is bounds[i]:bounds[i + 1]."""
    bounds = [0, 1]
    number = parent.dtype.type  # of a number of another type, numpy would convert the whole column each time
    while bounds[-1] < len(parent):
        bounds.append(int(np.searchsorted(parent, number(bounds[-1]))))
    return bounds


def levels(depth: Depths) -> list[tuple[int, int]]:
    """Start and end of each level: neighbours of one depth."""
    starts = np.flatnonzero(np.diff(depth, prepend=np.int32(-1))).tolist()
    return list(zip(starts, [*starts[1:], len(depth)], strict=True))


def stable_order(numbers: npt.NDArray[np.integer]) -> npt.NDArray[np.intp]:
    """As a stable argsort, of numbers from 0 to 2^31. (numpy sorts 16 bits in linear time.)"""
    order = np.argsort((numbers & 0xFFFF).astype(np.uint16), kind="stable")
    if int(numbers.max(initial=0)) > 0xFFFF:
        order = order[np.argsort((numbers[order] >> 16).astype(np.uint16), kind="stable")]
    return order


def depth_first_intervals(parent: Rows) -> tuple[Rows, Rows]:
    """For a tree as of `level_bounds`: each node's depth-first number, and the number after its last descendant's."""
    bounds = list(pairwise(level_bounds(parent)[1:]))
    size = np.ones(len(parent), np.int32)
    for start, end in reversed(bounds):
        np.add.at(size, parent[start:end], size[start:end].copy())  # of an overlapping array, numpy copies all
    first = np.zeros(len(parent), np.int32)
    for start, end in bounds:
        parents = parent[start:end]
        nodes_before = np.cumsum(size[start:end], dtype=np.int32) - size[start:end]
        is_first = np.diff(parents, prepend=np.int32(-1)) > 0  # of siblings
        first[start:end] = first[parents] + 1 + nodes_before - nodes_before[is_first][np.cumsum(is_first) - 1]
    return first, first + size


def rows_above(leaves: Rows, parent: Rows, known: npt.NDArray[np.bool_]) -> Rows:
    """`leaves` and all rows above them in ascending order, without known rows and those above known rows."""
    visited = known.copy()
    stamp = np.empty(len(parent), np.int32)
    level = leaves
    while len(level):
        level = level[~visited[level]]
        # Keeps each row once. (np.unique sorts, which takes ten times as long.) Of equal rows, the last stamp stays.
        numbers = np.arange(len(level), dtype=np.int32)
        stamp[level] = numbers
        level = level[stamp[level] == numbers]
        visited[level] = True
        level = parent[level]
    return np.flatnonzero(visited & ~known).astype(np.int32)
