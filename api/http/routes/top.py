"""A profile as a table."""

from enum import StrEnum
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from api.http.answers import json_response
from api.http.app_state import Context, context
from api.queries.selection import Scope, scope
from api.queries.stack_values import read_stack_values
from api.tree.functions import TOTAL, Functions
from api.tree.graph import Graph, build
from api.tree.top_table import top

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
    summary="The functions that a profile spends most in",
    responses={200: {"content": {"application/json": {"example": _EXAMPLE}}}},
)
def top_functions(
    scope: Annotated[Scope, Depends(scope)],
    context: Annotated[Context, Depends(context)],
    by: Annotated[By, Query(description="A row per function, or per module (file mapped).")] = By.FUNCTION,
    order: Annotated[Order, Query(description="Which column is largest first.")] = Order.FLAT,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Rows; what is behind them is summed up in `rest`.")] = 50,
) -> Response:
    """flat: spent in the function itself; cumulative: with what it called (recursion counts once)."""
    values = read_stack_values(context.database, "samples", scope.branches(), context.settings.api_max_stacks)
    resolved = context.stacks.functions_of(values.stack_ids)
    graph = build(resolved.tree, resolved.leaves, values.values[np.newaxis])
    group = _by_module(graph, resolved.functions) if by is By.MODULE else graph.function.astype(np.int64)
    table = top(graph, group)
    keep = table.groups != group[0]  # the root
    groups, flat, cumulative = table.groups[keep], table.flat[keep], table.cumulative[keep]
    primary, other = (flat, cumulative) if order is Order.FLAT else (cumulative, flat)
    rows = np.lexsort((groups, -other, -primary))
    shown, rest = rows[:limit], rows[limit:]
    first = {int(g): int(f) for g, f in zip(group[::-1], graph.function[::-1], strict=True)}
    return json_response(
        scope.as_json()
        | {"total": values.total, "samples": values.samples}
        | {
            "top": [
                _row(by, resolved.functions, first[int(groups[i])])
                | {"flat": int(flat[i]), "cumulative": int(cumulative[i])}
                for i in shown
            ],
            "rest": {"rows": len(rest), "flat": int(flat[rest].sum())},
        }
    )


def _row(by: By, functions: Functions, row: int) -> dict[str, Any]:
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


def _by_module(graph: Graph, functions: Functions) -> npt.NDArray[np.int64]:
    """A number per module; functions without one stand for themselves."""
    numbers: dict[tuple[str, str], int] = {}
    rows, of = np.unique(graph.function, return_inverse=True)
    listed = [functions[int(row)] for row in rows]
    assert rows[0] == TOTAL
    keys = [(f.module, "" if f.module else f.name) for f in listed]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)[of]
