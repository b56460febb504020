"""Trees as JSON in columns (docs/query-api.md, "The tree")."""

from collections import defaultdict
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from api.statistics.evidence import Evidence
from api.tree.distinct import distinct_numbers
from api.tree.functions import KINDS, FunctionRows
from api.tree.picture import Picture
from api.tree.top_table import TopTable

_PREFIXES = ("", "baseline_")
_KIND_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}


def tree(
    picture: Picture, table: TopTable, functions: FunctionRows, max_functions: int, evidence: Evidence | None = None
) -> dict[str, Any]:
    """The members that describe a tree, with arrays as lists. If it has a second side, that is the baseline, and
    `changed` says where `evidence` supports a change; it is null without evidence.

    `table` has the sums of functions, whether they are in the picture or not. Those of the functions in the picture are
    in the answer, and of others the `max_functions` with the largest ones.
    """
    graph = picture.graph
    weight = np.maximum(np.abs(table.flat), np.abs(table.cumulative)).max(axis=0)
    listed = table.groups[np.argsort(-weight, kind="stable")[:max_functions]]
    # The root's function comes first: functions are in the order of their rows.
    used, index = distinct_numbers(np.concatenate([graph.function, listed]))
    nodes = {"parent": graph.parent, "function": index[: len(graph.function)]}
    columns = _function_columns(used, functions)
    cut: dict[str, int] = {"nodes": picture.cut_nodes}
    is_used = np.isin(table.groups, used)
    rest: dict[str, int] = {"functions": int((~is_used).sum())}
    rows = np.searchsorted(used, table.groups[is_used])
    for side, prefix in zip(range(len(graph.self_values)), _PREFIXES, strict=False):
        nodes[f"{prefix}self"] = graph.self_values[side]
        nodes[f"{prefix}total"] = graph.total_values[side]
        cut[f"{prefix}value"] = int(picture.cut_values[side])
        rest[f"{prefix}flat"] = int(table.flat[side, ~is_used].sum())
        for column, sums in (("flat", table.flat), ("cumulative", table.cumulative)):
            values = np.zeros(len(used), np.int64)
            values[rows] = sums[side, is_used]
            columns["functions"][prefix + column] = values
    if len(graph.self_values) > 1:
        nodes["changed"] = evidence and evidence.changed(graph.total_values).astype(np.uint8)
        of_functions = np.zeros(len(used), np.uint8)
        if evidence:
            of_functions[rows] = evidence.changed(table.flat)[is_used]
        columns["functions"]["changed"] = of_functions if evidence else None
    return {"root": picture.root, "cut": cut, "rest": rest, **columns, "nodes": nodes}


def _function_columns(used: npt.NDArray[np.int64], functions: FunctionRows) -> dict[str, Any]:
    strings = defaultdict[str, int](count(1).__next__, {"": 0})  # a text that is asked for gets the next number
    rows = [functions[row] for row in used.tolist()]
    columns = {
        "name": [strings[f.name] for f in rows],
        "module": [strings[f.module] for f in rows],
        "file": [strings[f.file] for f in rows],
        "line": [f.line for f in rows],
        "kind": [_KIND_NUMBERS[f.kind] for f in rows],
        "named": [int(f.named) for f in rows],
    }
    return {"strings": list(strings), "kinds": list(KINDS), "functions": columns}
