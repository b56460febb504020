"""Graphs as JSON in columns (docs/query-api.md, "The tree")."""

from typing import Any

import numpy as np

from api.tree.frame_functions import FrameFunctions
from api.tree.functions import KINDS
from api.tree.graph import Graph


def tree(graph: Graph, functions: FrameFunctions) -> dict[str, Any]:
    """The members that describe the graph. If it has a second side, that is the baseline."""
    used, function = np.unique(graph.function, return_inverse=True)
    nodes = {"parent": graph.parent.tolist(), "function": function.tolist()}
    cut: dict[str, int] = {"nodes": graph.cut_nodes}
    for side, prefix in zip(range(len(graph.self_values)), ("", "baseline_"), strict=False):
        nodes[f"{prefix}self"] = graph.self_values[side].tolist()
        nodes[f"{prefix}total"] = graph.total_values[side].tolist()
        cut[f"{prefix}value"] = int(graph.cut_values[side])
    return {"cut": cut, **_function_columns(used.tolist(), functions), "nodes": nodes}


def _function_columns(rows: list[int], functions: FrameFunctions) -> dict[str, Any]:
    strings: dict[str, int] = {"": 0}
    used = [functions[row] for row in rows]

    def column(texts: list[str]) -> list[int]:
        return [strings.setdefault(text, len(strings)) for text in texts]

    columns = {
        "name": column([f.name for f in used]),
        "module": column([f.module for f in used]),
        "file": column([f.file for f in used]),
        "line": [f.line for f in used],
        "kind": [KINDS.index(f.kind) for f in used],
        "named": [int(f.named) for f in used],
    }
    return {"strings": list(strings), "kinds": list(KINDS), "functions": columns}
