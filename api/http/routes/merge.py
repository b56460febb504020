"""One profile of a selector and a time range."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from api.http.answers import ProfileHead, check_format, graph_response
from api.http.app_state import ApiState, app_state
from api.http.error_model import error_responses
from api.http.formats import Format, FormatParam
from api.http.graph_model import Firefox, MergeAnswer, Speedscope, graph_responses
from api.http.parameters import selection
from api.http.tree_parameters import TreeShape, tree_shape
from api.http.view_parameters import GroupByParam, View, view
from api.queries.selection.selection import Selection
from api.queries.stacks.labelled_stack_values import read_labelled_stack_values
from api.queries.stacks.stack_values import read_selected_stacks
from api.views.labels_first import LabelValues

router = APIRouter(tags=["profiles"])


@router.get(
    "/api/v1/merge",
    summary="Merge samples into one profile",
    responses=graph_responses(MergeAnswer | Speedscope | Firefox) | error_responses(404),
)
def merge(
    selection: Annotated[Selection, Depends(selection)],
    state: Annotated[ApiState, Depends(app_state)],
    view: Annotated[View, Depends(view)],
    shape: Annotated[TreeShape, Depends(tree_shape)],
    group_by: GroupByParam = None,
    output_format: FormatParam = Format.TREE,
) -> Response:
    """Sums up all samples that the selector selects in the time range."""
    check_format(output_format, view, shape, is_grouped=bool(group_by))
    limit, labels = state.settings.api_max_stacks, None
    if group_by:
        grouped = read_labelled_stack_values(state.database, selection, group_by, limit)
        values, labels = grouped.stacks, LabelValues(group_by, grouped.values, grouped.value_of_stack)
    else:
        values = read_selected_stacks(state.database, selection, limit)
    head = ProfileHead(selection.profile_type, selection.time_range, selection.as_json() | {"rollups": values.rollups})
    return graph_response(state, values, head, output_format, view, shape, labels)
