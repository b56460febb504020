"""Graphs as collapsed ("folded") text: a line a stack, root first, `;` between frames, a space, the value."""

from collections.abc import Iterator

import numpy as np

from api.tree.functions import Functions
from api.tree.graph import Graph

MEDIA_TYPE = "text/plain; charset=utf-8"
_LINES_A_CHUNK = 500
_CONTROL = dict.fromkeys((*range(32), 127, 0x85, 0x2028, 0x2029), " ")


def collapsed(graph: Graph, functions: Functions) -> Iterator[str]:
    """Lines in chunks; one a node that has a value of its own, and in a diff both values, baseline first."""
    names = {row: frame_text(functions[row].name) for row in set(graph.function.tolist())}
    frames = [names[row] for row in graph.function.tolist()]
    parent = graph.parent.tolist()
    sides = graph.own[::-1].T.tolist()
    lines: list[str] = []
    for row in np.flatnonzero(graph.own.any(axis=0)).tolist():
        path = []
        at = row
        while at > 0:
            path.append(frames[at])
            at = parent[at]
        path.reverse()
        lines.append(f"{';'.join(path)} {' '.join(map(str, sides[row]))}\n")
        if len(lines) == _LINES_A_CHUNK:
            yield "".join(lines)
            lines.clear()
    yield "".join(lines)


def frame_text(name: str) -> str:
    """A name as a frame of a line: without `;` and line ends."""
    return name.replace(";", ":").translate(_CONTROL)
