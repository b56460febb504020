"""Graphs as collapsed ("folded") text: for each stack a line with its frames (root first, `;` between) and value."""

from collections.abc import Iterator

import numpy as np

from api.render.paths import paths_from_root
from api.tree.functions import FunctionRows
from api.tree.graph import Graph

MEDIA_TYPE = "text/plain; charset=utf-8"
_CONTROL = dict.fromkeys((*range(32), 127, 0x85, 0x2028, 0x2029), " ")


def collapsed(graph: Graph, functions: FunctionRows) -> Iterator[str]:
    """Yields chunks of lines: one for each node with a self value; in a diff with both values, the baseline's first."""
    used, frame = np.unique(graph.function, return_inverse=True)
    names = [frame_text(functions[row].name) for row in used.tolist()]
    rows = np.flatnonzero(graph.self_values.any(axis=0)).astype(np.int32)
    values = iter(graph.self_values[::-1, rows].T.tolist())
    for paths in paths_from_root(rows, graph.parent, frame):
        yield "".join(
            f"{';'.join(map(names.__getitem__, path))} {' '.join(map(str, value))}\n"
            for path, value in zip(paths, values, strict=False)
        )


def frame_text(name: str) -> str:
    """A name as a frame of a line: without `;` and control characters."""
    return name.replace(";", ":").translate(_CONTROL)
