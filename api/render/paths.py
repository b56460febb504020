"""Paths of a graph's nodes."""

from typing import TypeVar

Frame = TypeVar("Frame")


def path_from_root(row: int, parent: list[int], frames: list[Frame]) -> list[Frame]:
    """The frames from a root's child down to the node `row`; `frames` has one for each node."""
    path = []
    while row > 0:
        path.append(frames[row])
        row = parent[row]
    path.reverse()
    return path
