"""A profile as a table of functions, lines, files, modules or addresses."""

from enum import StrEnum
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from api.http.answer_model import SELECTION_EXAMPLE, Answer, SelectionAnswer, described
from api.http.answers import json_response
from api.http.app_state import ApiState, app_state
from api.http.parameters import selection
from api.http.view_parameters import View, view
from api.queries.selection.selection import Selection
from api.queries.stacks.stack_values import read_selected_stacks
from api.tree.functions import TOTAL, Function
from api.tree.top_table import TopTable, top_table_of

router = APIRouter(tags=["profiles"])


class TopRow(Answer):
    name: str
    module: str
    file: str
    line: int
    kind: str
    named: bool
    flat: int
    cumulative: int


class RestOfTop(Answer):
    rows: int
    flat: int


class Top(SelectionAnswer):
    total: int
    samples: int
    frames: str
    top: list[TopRow]
    rest: RestOfTop


class TopOrder(StrEnum):
    FLAT = "flat"
    CUMULATIVE = "cumulative"


_EXAMPLE = {
    **SELECTION_EXAMPLE,
    "total": 1000000000,
    "samples": 100,
    "frames": "all",
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
    responses=described(Top, _EXAMPLE),
)
def top(
    selection: Annotated[Selection, Depends(selection)],
    state: Annotated[ApiState, Depends(app_state)],
    view: Annotated[View, Depends(view)],
    order: Annotated[TopOrder, Query(description="Which column is largest first.")] = TopOrder.FLAT,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Rows; `rest` sums up the others.")] = 50,
) -> Response:
    """flat: spent in the function itself; cumulative: with what it called (recursion counts once)."""
    values = read_selected_stacks(state.database, selection, state.settings.api_max_stacks)
    values = values.where(view.keeps(state, values.stack_ids))
    view = view.decided(state, values.stack_ids, values.values[np.newaxis])
    stacks = view.stacks(state, values.stack_ids)
    table = top_table_of(stacks.tree, stacks.leaves, values.values[np.newaxis]).without(TOTAL)
    flat, cumulative = table.flat[0], table.cumulative[0]
    rows = _ordered_rows(table, order)
    listed, rest = rows[:limit], rows[limit:]
    return json_response(
        selection.as_json()
        | {"rollups": values.rollups, "total": values.total, "samples": values.samples, "frames": view.frames.value}
        | {
            "top": [
                _names(stacks.functions[int(table.groups[row])])
                | {"flat": int(flat[row]), "cumulative": int(cumulative[row])}
                for row in listed
            ],
            "rest": {"rows": len(rest), "flat": int(flat[rest].sum())},
        }
    )


def _ordered_rows(table: TopTable, order: TopOrder) -> npt.NDArray[np.intp]:
    """Rows of the table, largest first."""
    first, second = table.flat[0], table.cumulative[0]
    if order is TopOrder.CUMULATIVE:
        first, second = second, first
    return np.lexsort((table.groups, -second, -first))


def _names(function: Function) -> dict[str, Any]:
    return {
        "name": function.name,
        "module": function.module,
        "file": function.file,
        "line": function.line,
        "kind": function.kind,
        "named": function.named,
    }
