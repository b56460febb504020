"""The requests of a list merged into one profile, and those of one list compared with those of another."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from api.http.answers import ProfileHead, check_format, graph_response
from api.http.app_state import ApiState, app_state
from api.http.formats import DiffFormat, DiffFormatParam, Format, FormatParam
from api.http.graph_model import Diff, Firefox, MergeAnswer, Speedscope, graph_responses
from api.http.parameters import (
    EndParam,
    ProfileTypeParam,
    SelectorParam,
    StartParam,
    parse_profile_type,
    parse_selector,
    parse_time_range,
)
from api.http.routes.diff import AbsoluteParam, Scaling, baseline_json, diff_response
from api.http.trace_ids import OfTraces, OfTwoTraceLists, described_body, of_traces, of_two_trace_lists
from api.http.tree_parameters import TreeShape, tree_shape
from api.http.view_parameters import View, view
from api.queries.selection.selection import Selection
from api.queries.selection.time_range import TimeRange
from api.queries.stacks.stack_values import read_stacks_of_traces
from icestream.times import MAX_UNIX_NANO
from icestream.topics import DEFAULT_PROFILE_TYPE

router = APIRouter(tags=["traces"])


def any_time(
    profile_type: ProfileTypeParam = DEFAULT_PROFILE_TYPE,
    selector: SelectorParam = "{}",
    start: StartParam = None,
    end: EndParam = None,
) -> Selection:
    """For routes, as a dependency: without `start` and `end`, all times are selected. Raises ApiError."""
    # The answer says times in whole milliseconds, and they can be given again.
    time_range = parse_time_range(start, end, TimeRange(0, MAX_UNIX_NANO - 10**6))
    return Selection(parse_profile_type(profile_type), parse_selector(selector), time_range)


@router.post(
    "/api/v1/merge",
    summary="Merge the samples of a list of requests into one profile",
    responses=graph_responses(MergeAnswer | Speedscope | Firefox),
    openapi_extra=described_body(OfTraces),
)
def merge_traces(
    given: Annotated[OfTraces, Depends(of_traces)],
    selection: Annotated[Selection, Depends(any_time)],
    state: Annotated[ApiState, Depends(app_state)],
    view: Annotated[View, Depends(view)],
    shape: Annotated[TreeShape, Depends(tree_shape)],
    output_format: FormatParam = Format.TREE,
) -> Response:
    """Answers as `GET` does, for the samples that have one of these trace IDs. Without `start` and `end`, all times
    count."""
    check_format(output_format, view, shape)
    values = read_stacks_of_traces(state.database, selection, given.trace_ids, state.settings.api_max_stacks)
    head = ProfileHead(selection.profile_type, selection.time_range, selection.as_json() | {"rollups": []})
    return graph_response(state, values, head, output_format, view, shape)


@router.post(
    "/api/v1/diff",
    summary="Compare the requests of one list with those of another",
    responses=graph_responses(Diff, binary=False),
    openapi_extra=described_body(OfTwoTraceLists),
)
def diff_traces(
    given: Annotated[OfTwoTraceLists, Depends(of_two_trace_lists)],
    selection: Annotated[Selection, Depends(any_time)],
    state: Annotated[ApiState, Depends(app_state)],
    view: Annotated[View, Depends(view)],
    shape: Annotated[TreeShape, Depends(tree_shape)],
    absolute: AbsoluteParam = False,
    output_format: DiffFormatParam = DiffFormat.TREE,
) -> Response:
    """Answers as `GET` does. The selector and the times hold for both lists. Without `start` and `end`, all times
    count."""
    limit = state.settings.api_max_stacks
    profile, baseline = (
        read_stacks_of_traces(state.database, selection, trace_ids, limit)
        for trace_ids in (given.trace_ids, given.baseline_trace_ids)
    )
    head = selection.as_json() | baseline_json(selection)
    scaling = Scaling.VALUE if absolute else Scaling.SHARE
    return diff_response(state, (profile, baseline), head, view, shape, scaling, output_format)
