"""One profile of a selector and a time range."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from api.http.answers import ProfileHead, graph_response
from api.http.app_state import AppState, app_state
from api.http.formats import GRAPH_RESPONSES, Format, FormatParam
from api.http.parameters import selection
from api.http.tree_parameters import Focus, TreeShape, focus, tree_shape
from api.queries.selection import Selection
from api.queries.stack_values import read_stack_values

router = APIRouter(tags=["profiles"])


@router.get("/api/v1/merge", summary="Merge samples into one profile", responses=GRAPH_RESPONSES)
def merge(
    selection: Annotated[Selection, Depends(selection)],
    state: Annotated[AppState, Depends(app_state)],
    focus: Annotated[Focus, Depends(focus)],
    shape: Annotated[TreeShape, Depends(tree_shape)],
    output_format: FormatParam = Format.TREE,
) -> Response:
    """Sums up all samples of a selector in a time range."""
    values = read_stack_values(state.database, "samples", selection.alternatives(), state.settings.api_max_stacks)
    values = values.where(focus.keeps(state, values.stack_ids))
    head = ProfileHead(selection.profile_type, selection.time_range, selection.as_json())
    return graph_response(state, values, head, output_format, shape)
