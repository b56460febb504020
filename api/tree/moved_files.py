"""Which files are at another path than before: a release in a folder of its own, a checkout, a virtual environment."""

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set

import numpy as np

_Parts = tuple[str, ...]
"""The folders of a path, and the name of the file."""

_MAX_FOLDERS = 64
"""So many folders above a file are compared at most."""
_MAX_PAIRS = 2_500
"""If more paths of one file name might be one file, they stay apart."""


def moved_files(before: Set[str], now: Set[str]) -> dict[str, str]:
    """Pairs paths that are only in `before` with paths that are only in `now`, each with one at most. Returns the path
    in `now` for both paths of each pair.

    Both have the same file name. Those whose paths end with more equal folders are paired first, and of several, those
    that have the most other folders in common. What might be paired in two ways stays apart.
    """
    pairs: dict[_Parts, _Parts] = {}
    gone, new = ([tuple(path.split("/")) for path in sorted(paths)] for paths in (before - now, now - before))
    for same_name in _with_equal_part(gone, new, -1):
        if same_name[0][0][-1]:
            _pair(*same_name, 1, pairs)
    return {"/".join(path): "/".join(after) for path, after in pairs.items()}


def _pair(gone: Sequence[_Parts], new: Sequence[_Parts], equal: int, pairs: dict[_Parts, _Parts]) -> None:
    """Pairs paths whose last parts are equal, as many as `equal`."""
    if len(gone) * len(new) > 1:
        if equal <= _MAX_FOLDERS:
            for same_folder in _with_equal_part(gone, new, -1 - equal):
                _pair(*same_folder, equal + 1, pairs)
        gone, new = ([path for path in side if path not in pairs] for side in (gone, new))
    if len(gone) == len(new) == 1:
        pairs[gone[0]] = pairs[new[0]] = new[0]
    elif 0 < len(gone) * len(new) <= _MAX_PAIRS:
        distance = np.array([[_distance(path, other) for other in new] for path in gone])
        nearest = (distance == distance.min(0)) & (distance == distance.min(1, keepdims=True))
        for row, column in np.argwhere(nearest).tolist():
            is_row, is_column = distance[row] == distance[row, column], distance[:, column] == distance[row, column]
            if is_row.sum() == is_column.sum() == 1:
                pairs[gone[row]] = pairs[new[column]] = new[column]


def _with_equal_part(
    gone: Sequence[_Parts], new: Sequence[_Parts], index: int
) -> Iterator[tuple[list[_Parts], list[_Parts]]]:
    """Yields the paths of both sides that have the same part there, where both sides have some."""
    sides: defaultdict[str, tuple[list[_Parts], list[_Parts]]] = defaultdict(lambda: ([], []))
    for number, paths in enumerate((gone, new)):
        for path in paths:
            if len(path) >= -index:
                sides[path[index]][number].append(path)
    return (both for both in sides.values() if all(both))


def _distance(path: _Parts, other: _Parts) -> int:
    """How many parts two paths do not have in common, at their beginning or at their end."""
    common = _equal_parts(path, other) + _equal_parts(path[::-1], other[::-1])
    return len(path) + len(other) - 2 * common


def _equal_parts(path: _Parts, other: _Parts) -> int:
    both = zip(path, other, strict=False)
    return next((equal for equal, (part, its) in enumerate(both) if part != its), min(len(path), len(other)))
