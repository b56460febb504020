"""What calls a function, and what it calls."""

from typing import Annotated

import numpy as np
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from api.http.answers import json_response, tree_answer
from api.http.app_state import ApiState, app_state
from api.http.graph_model import SandwichAnswer
from api.http.parameters import selection
from api.http.tree_parameters import DEFAULT_MAX_NODES, MaxNodesParam, TreeShape, WidthParam
from api.http.view_parameters import View, view
from api.queries.selection.selection import Selection
from api.queries.stacks.stack_values import read_selected_stacks
from api.views.drawn import Arrangement, draw, draw_callers
from api.views.sandwich import NamedFunction, sandwich
from api.views.used_part import used_part

router = APIRouter(tags=["profiles"])

_ANY = "Without it, any."


@router.get(
    "/api/v1/sandwich",
    summary="Show what calls a function, and what it calls",
    responses={200: {"model": SandwichAnswer, "description": "Two trees"}},
)
def one_function(
    selection: Annotated[Selection, Depends(selection)],
    state: Annotated[ApiState, Depends(app_state)],
    view: Annotated[View, Depends(view)],
    function: Annotated[str, Query(min_length=1, max_length=10_000, description="The name, as in top.")],
    module: Annotated[str | None, Query(max_length=10_000, description=f"Its module, as in top. {_ANY}")] = None,
    file: Annotated[str | None, Query(max_length=10_000, description=f"Its source file, as in top. {_ANY}")] = None,
    max_nodes: MaxNodesParam = DEFAULT_MAX_NODES,
    width: WidthParam = None,
) -> Response:
    """Two trees of the stacks that have the function. Recursion counts once.

    `callees` starts with the function's outermost frame on each stack and goes to the leaves; `callers` goes from that
    frame to the outermost one. The total of both is the function's cumulative value.
    """
    shape = TreeShape(max_nodes, width, root=0, invert=False)
    shape.check(state.settings)
    values = read_selected_stacks(state.database, selection, state.settings.api_max_stacks)
    values = values.where(view.keeps(state, values.stack_ids))
    view = view.decided(state, values.stack_ids, values.values[np.newaxis])
    asked_for = NamedFunction(function, module, file)
    stacks = used_part(view.stacks(state, values.stack_ids, asked_for.is_one))
    sides = sandwich(stacks, asked_for.rows(stacks))
    chosen = values.where(sides.has_function)
    value = chosen.values[np.newaxis]
    return json_response(
        selection.as_json()
        | {"rollups": values.rollups, "function": function, "module": module, "file": file, "of_total": values.total}
        | {
            "frames": view.frames.value,
            "total": chosen.total,
            "samples": chosen.samples,
            "stacks": len(chosen.stack_ids),
        }
        | {
            "callers": tree_answer(draw_callers(sides.callers, value), shape, (1.0,)),
            "callees": tree_answer(draw(sides.callees, value, Arrangement()), shape, (1.0,)),
        }
    )
