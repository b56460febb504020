"""One profile of a selector and a time range."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from api.http.answers import ProfileHead, graph_response
from api.http.app_state import AppState, app_state
from api.http.formats import DEFAULT_MAX_NODES, GRAPH_RESPONSES, Format, FormatParam, MaxNodesParam
from api.http.parameters import selection
from api.queries.selection import Selection
from api.queries.stack_values import read_stack_values

router = APIRouter(tags=["profiles"])


@router.get("/api/v1/merge", summary="Merge samples into one profile", responses=GRAPH_RESPONSES)
def merge(
    selection: Annotated[Selection, Depends(selection)],
    state: Annotated[AppState, Depends(app_state)],
    output_format: FormatParam = Format.TREE,
    max_nodes: MaxNodesParam = DEFAULT_MAX_NODES,
) -> Response:
    """Sums up all samples of a selector in a time range."""
    values = read_stack_values(state.database, "samples", selection.alternatives(), state.settings.api_max_stacks)
    head = ProfileHead(selection.profile_type, selection.time_range, selection.as_json())
    return graph_response(state, values, head, output_format, max_nodes)
