"""Profiles for profiler.firefox.com: its processed profile format, version 66 (docs-developer/CHANGELOG-formats.md and
src/types/profile.ts of github.com/firefox-devtools/profiler), which later versions of the site still open."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from api.queries.selection.time_range import TimeRange
from api.tree.functions import FunctionRows
from api.tree.graph import Graph
from api.tree.levels import depth_first_intervals
from icestream.version import VERSION

MEDIA_TYPE = "application/json"
FILE_NAME = "icestream.firefox.json"

_KINDS = {"user": "Native", "kernel": "Kernel", "jit": "JIT"}
_CATEGORIES = {"Other": "grey", "Native": "blue", "Kernel": "orange", "JIT": "green"}
_WEIGHTS = {"nanoseconds": ("tracing-ms", 10**6), "bytes": ("bytes", 1)}
"""Units that the format knows: its name for them, and how much of ours one of it is. Others are numbers of samples."""
_NO_LIBRARY = -1


def firefox(graph: Graph, functions: FunctionRows, name: str, unit: str, time_range: TimeRange | None) -> Iterator[str]:
    """Yields one thread as text: one sample for each node with a self value, in depth-first order."""
    weight_type, divisor = _WEIGHTS.get(unit, ("samples", 1))
    used, function = np.unique(graph.function[1:], return_inverse=True)
    strings: dict[str, int] = {}
    head = {"meta": _meta(name, time_range), "libs": [], "pages": [], "profilerOverhead": [], "counters": []}
    yield f'{_json(head)[:-1]},"shared":{{'
    for table, columns in _tables(functions, used.tolist(), strings).items():
        yield f'"{table}":{_json(columns)},'
    yield f'"stackTable":{_json(_stack_table(graph, function))},"stringArray":{_json(list(strings))}}}'
    yield f',"threads":[{_json(_thread(graph, name, weight_type, divisor))}]}}'


def _meta(name: str, time_range: TimeRange | None) -> dict[str, Any]:
    categories = [{"name": each, "color": color, "subcategories": ["Other"]} for each, color in _CATEGORIES.items()]
    return {
        "categories": categories,
        "debug": False,
        "extensions": {"length": 0, "baseURL": [], "id": [], "name": []},
        "interval": 1,
        "preprocessedProfileVersion": 66,
        "version": 24,
        "processType": 0,
        "product": f"icestream {VERSION}: {name}",
        "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "µs"},
        "startTime": time_range.start_unix_nano / 10**6 if time_range else 0,
        "symbolicated": True,
        "pausedRanges": [],
        "usesOnlyOneStackType": True,
        "sourceCodeIsNotOnSearchfox": True,
        "markerSchema": [],
    }


def _tables(functions: FunctionRows, used: list[int], strings: dict[str, int]) -> dict[str, dict[str, Any]]:
    """One function, and one frame of it, for each row that is used. A resource is a mapped file. Adds to `strings`."""
    names, files, modules, categories, lines = [], [], [], [], []
    sources: dict[str, int] = {}
    resources: dict[str, int] = {}
    for row in used:
        function = functions[row]
        names.append(strings.setdefault(function.name, len(strings)))
        files.append(sources.setdefault(function.file, len(sources)) if function.file else None)
        modules.append(resources.setdefault(function.module, len(resources)) if function.module else -1)
        categories.append(list(_CATEGORIES).index(_KINDS.get(function.kind, "Other")))
        lines.append(function.line or None)
    count = len(used)
    empty = [None] * count
    return {
        "frameTable": {
            "length": count, "address": [-1] * count, "category": categories, "subcategory": [0] * count,
            "func": list(range(count)), "inlineDepth": [0] * count, "innerWindowID": [0] * count,
            "nativeSymbol": empty, "line": lines, "column": empty, "originalLocation": empty,
        },
        "funcTable": {
            "length": count, "name": names, "isJS": [False] * count, "relevantForJS": [False] * count,
            "resource": modules, "source": files, "lineNumber": lines, "columnNumber": empty,
            "originalLocation": empty,
        },
        "resourceTable": {
            "length": len(resources), "lib": [_NO_LIBRARY] * len(resources), "host": [None] * len(resources),
            "name": [strings.setdefault(each, len(strings)) for each in resources], "type": [1] * len(resources),
        },
        "sources": {
            "length": len(sources), "id": [None] * len(sources), "content": [None] * len(sources),
            "filename": [strings.setdefault(each, len(strings)) for each in sources],
            "sourceMapURL": [None] * len(sources), "startLine": [1] * len(sources), "startColumn": [1] * len(sources),
        },
        "sourceLocationTable": {"length": 0, "source": [], "line": [], "column": []},
        "nativeSymbols": {"length": 0, "libIndex": [], "address": [], "name": [], "functionSize": []},
    }  # fmt: skip


def _stack_table(graph: Graph, function: npt.NDArray[np.intp]) -> dict[str, Any]:
    """The nodes below the root. A prefix is told as its distance, 0 for none."""
    rows = np.arange(1, len(graph.parent))
    parents = graph.parent[1:]
    return {
        "length": len(rows),
        "frame": function.tolist(),
        "prefixOffset": np.where(parents > 0, rows - parents, 0).tolist(),
    }


def _thread(graph: Graph, name: str, weight_type: str, divisor: int) -> dict[str, Any]:
    """Samples lie one after the other, each as long as its weight, so that the time axis is as long as the sum."""
    depth_first, _ = depth_first_intervals(graph.parent)
    rows = np.flatnonzero(graph.self_values[0])
    rows = rows[np.argsort(depth_first[rows])]
    weights = graph.self_values[0, rows] / divisor
    lengths = np.abs(weights)
    return {
        "name": name,
        "isMainThread": True,
        "processType": "default",
        "processName": name,
        "processStartupTime": 0,
        "processShutdownTime": None,
        "registerTime": 0,
        "unregisterTime": None,
        "pausedRanges": [],
        "showMarkersInTimeline": False,
        "pid": "0",
        "tid": "0",
        "markers": {
            "length": 0, "category": [], "data": [], "name": [], "phase": [], "startTime": [], "endTime": [],
        },
        "samples": {
            "length": len(rows),
            "stack": [row - 1 if row else None for row in rows.tolist()],
            "time": (np.cumsum(lengths) - lengths).tolist(),
            "weight": weights.tolist(),
            "weightType": weight_type,
        },
    }  # fmt: skip


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
