"""A profile as a table of functions or modules."""

from enum import StrEnum
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from api.http.answers import json_response
from api.http.app_state import AppState, app_state
from api.http.parameters import selection
from api.http.tree_parameters import Focus, focus
from api.queries.selection import Selection
from api.queries.stack_values import read_stack_values
from api.tree.frame_functions import FrameFunctions
from api.tree.graph import Graph, build_graph
from api.tree.top_table import TopTable, top_table

router = APIRouter(tags=["profiles"])


class By(StrEnum):
    FUNCTION = "function"
    MODULE = "module"


class Order(StrEnum):
    FLAT = "flat"
    CUMULATIVE = "cumulative"


_EXAMPLE = {
    "unit": "nanoseconds",
    "total": 1000000000,
    "samples": 100,
    "top": [
        {
            "name": "parse",
            "module": "/usr/bin/checkout",
            "file": "parse.c",
            "line": 17,
            "kind": "user",
            "named": True,
            "flat": 300000000,
            "cumulative": 750000000,
        }
    ],
    "rest": {"rows": 41, "flat": 700000000},
}


@router.get(
    "/api/v1/top",
    summary="List the functions that use the most",
    responses={200: {"content": {"application/json": {"example": _EXAMPLE}}}},
)
def top(
    selection: Annotated[Selection, Depends(selection)],
    state: Annotated[AppState, Depends(app_state)],
    focus: Annotated[Focus, Depends(focus)],
    by: Annotated[By, Query(description="One row for each function, or for each module (mapped file).")] = By.FUNCTION,
    order: Annotated[Order, Query(description="Which column is largest first.")] = Order.FLAT,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Rows; `rest` sums up the others.")] = 50,
) -> Response:
    """flat: spent in the function itself; cumulative: with what it called (recursion counts once)."""
    values = read_stack_values(state.database, "samples", selection.alternatives(), state.settings.api_max_stacks)
    values = values.where(focus.keeps(state, values.stack_ids))
    stacks = state.stacks.functions_of(values.stack_ids)
    graph = build_graph(stacks.tree, stacks.leaves, values.values[np.newaxis])
    group = _modules(graph, stacks.functions) if by is By.MODULE else graph.function.astype(np.int64)
    table = top_table(graph, group).without(int(group[0]))
    flat, cumulative = table.flat[0], table.cumulative[0]
    rows = _ordered_rows(table, order)
    listed, rest = rows[:limit], rows[limit:]
    function_of_group = dict(zip(group[::-1].tolist(), graph.function[::-1].tolist(), strict=True))
    return json_response(
        selection.as_json()
        | {"total": values.total, "samples": values.samples}
        | {
            "top": [
                _names(by, stacks.functions, function_of_group[int(table.groups[row])])
                | {"flat": int(flat[row]), "cumulative": int(cumulative[row])}
                for row in listed
            ],
            "rest": {"rows": len(rest), "flat": int(flat[rest].sum())},
        }
    )


def _ordered_rows(table: TopTable, order: Order) -> npt.NDArray[np.intp]:
    """Rows of the table, largest first."""
    first, second = table.flat[0], table.cumulative[0]
    if order is Order.CUMULATIVE:
        first, second = second, first
    return np.lexsort((table.groups, -second, -first))


def _names(by: By, functions: FrameFunctions, row: int) -> dict[str, Any]:
    function = functions[row]
    if by is By.MODULE:
        return {"module": function.module or function.name, "kind": function.kind}
    return {
        "name": function.name,
        "module": function.module,
        "file": function.file,
        "line": function.line,
        "kind": function.kind,
        "named": function.named,
    }


def _modules(graph: Graph, functions: FrameFunctions) -> npt.NDArray[np.int64]:
    """A number for each node's module. Functions without a module are modules of their own."""
    numbers: dict[tuple[str, str], int] = {}
    rows, index = np.unique(graph.function, return_inverse=True)
    used = [functions[row] for row in rows.tolist()]
    modules = [(f.module, "" if f.module else f.name) for f in used]
    return np.array([numbers.setdefault(module, len(numbers)) for module in modules], np.int64)[index]
