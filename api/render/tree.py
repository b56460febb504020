"""Graphs as JSON in columns (docs/query-api.md, "The tree")."""

from typing import Any

import numpy as np

from api.tree.functions import KINDS, Functions
from api.tree.graph import Graph


def tree(graph: Graph, functions: Functions) -> dict[str, Any]:
    """The members that describe the graph; the second side, where it has one, is the baseline."""
    used, function = np.unique(graph.function, return_inverse=True)
    nodes = {"parent": graph.parent.tolist(), "function": function.tolist()}
    cut: dict[str, int] = {"nodes": graph.cut_nodes}
    for side, prefix in zip(range(len(graph.own)), ("", "baseline_"), strict=False):
        nodes |= {f"{prefix}self": graph.own[side].tolist(), f"{prefix}total": graph.total[side].tolist()}
        cut[f"{prefix}value"] = int(graph.cut[side])
    return {"cut": cut, **_function_columns(used.tolist(), functions), "nodes": nodes}


def _function_columns(rows: list[int], functions: Functions) -> dict[str, Any]:
    strings: dict[str, int] = {"": 0}
    listed = [functions[row] for row in rows]

    def column(texts: list[str]) -> list[int]:
        return [strings.setdefault(text, len(strings)) for text in texts]

    columns = {
        "name": column([f.name for f in listed]),
        "module": column([f.module for f in listed]),
        "file": column([f.file for f in listed]),
        "line": [f.line for f in listed],
        "kind": [KINDS.index(f.kind) for f in listed],
        "named": [int(f.named) for f in listed],
    }
    return {"strings": list(strings), "kinds": list(KINDS), "functions": columns}
