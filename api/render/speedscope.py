"""Profiles for speedscope.app (its file format: src/lib/file-format-spec.ts of github.com/jlfwong/speedscope)."""

import json
from collections.abc import Iterable, Iterator

import numpy as np

from api.render.paths import paths_from_root
from api.tree.functions import FunctionRows
from api.tree.graph import Graph
from api.tree.levels import depth_first_intervals
from icestream.version import VERSION

MEDIA_TYPE = "application/json"
FILE_NAME = "icestream.speedscope.json"

_UNITS = ("nanoseconds", "microseconds", "milliseconds", "seconds", "bytes")


def speedscope(graph: Graph, functions: FunctionRows, name: str, unit: str) -> Iterator[str]:
    """Yields one "sampled" profile as text: one sample for each node with a self value, in depth-first order."""
    used, frame = np.unique(graph.function, return_inverse=True)
    frames = [_frame(functions, row) for row in used.tolist()]
    depth_first, _ = depth_first_intervals(graph.parent)
    rows = np.flatnonzero(graph.self_values[0])
    rows = rows[np.argsort(depth_first[rows])]
    weights = graph.self_values[0, rows].tolist()
    head = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": f"icestream@{VERSION}",
        "name": name,
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
    }
    profile = {
        "type": "sampled",
        "name": name,
        "unit": unit if unit in _UNITS else "none",
        "startValue": 0,
        "endValue": sum(weights),
        "weights": weights,
    }
    yield f'{_json(head)[:-1]},"profiles":[{_json(profile)[:-1]},"samples":['
    yield from _samples(paths_from_root(rows.astype(np.int32), graph.parent, frame))
    yield "]}]}"


def _samples(parts: Iterable[list[list[int]]]) -> Iterator[str]:
    separator = ""
    for paths in parts:
        yield separator + _json(paths)[1:-1]
        separator = ","


def _frame(functions: FunctionRows, row: int) -> dict[str, str | int]:
    function = functions[row]
    frame: dict[str, str | int] = {"name": function.name}
    if function.file or function.module:
        frame["file"] = function.file or function.module
    if function.line:
        frame["line"] = function.line
    return frame


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
