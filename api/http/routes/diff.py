"""A profile compared with a baseline."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response, StreamingResponse

from api.array_types import Ids, Values
from api.comparison.operations import cpu_of_one_request
from api.errors import bad_request
from api.http.answers import json_response, tree_answer
from api.http.app_state import ApiState, app_state
from api.http.formats import DiffFormat, DiffFormatParam
from api.http.graph_model import Diff, graph_responses
from api.http.parameters import (
    EndParam,
    NowParam,
    SelectorParam,
    StartParam,
    parse_selector,
    parse_time_range,
    selection,
)
from api.http.tree_parameters import TreeShape, tree_shape
from api.http.view_parameters import View, view
from api.queries.operations.confidence import is_cpu
from api.queries.operations.operations import operation_labels, read_operations
from api.queries.selection.sample_operations import OPERATION
from api.queries.selection.selection import Selection
from api.queries.selection.selector import format_selector
from api.queries.stacks.stack_values import StackValues, read_selected_stacks
from api.render.collapsed import MEDIA_TYPE, collapsed
from api.statistics.evidence import Evidence
from api.tree.graph import build_graph
from api.views.drawn import Arrangement, draw
from api.views.join import join_moved

router = APIRouter(tags=["profiles"])


def baseline(
    selection: Annotated[Selection, Depends(selection)],
    now: NowParam,
    baseline_selector: SelectorParam | None = None,
    baseline_start: StartParam = None,
    baseline_end: EndParam = None,
) -> Selection:
    """For the route, as a dependency: missing parameters are those of the profile. Raises ApiError."""
    if not (baseline_selector or baseline_start or baseline_end):
        hint = "give baseline_selector, baseline_start or baseline_end; those missing are as in the profile"
        raise bad_request("no_baseline", "no baseline to compare with", hint)
    matchers = parse_selector(baseline_selector, "baseline_selector") if baseline_selector else selection.matchers
    time_range = parse_time_range(baseline_start, baseline_end, selection.time_range, "baseline_", now)
    return Selection(selection.profile_type, matchers, time_range)


AbsoluteParam = Annotated[
    bool,
    Query(
        description="Compare values as they are, instead of scaling both sides to one request, or the smaller side up"
        " to the larger one. Those of gauges always are."
    ),
]


class Scaling(StrEnum):
    """How the sides of a diff are made comparable."""

    REQUEST = "request"  # each is the CPU of one request: both selectors name an operation
    SHARE = "share"  # the smaller one is scaled up to the larger one
    VALUE = "value"  # not at all


@router.get("/api/v1/diff", summary="Compare a profile with a baseline", responses=graph_responses(Diff, binary=False))
def diff(
    selection: Annotated[Selection, Depends(selection)],
    baseline: Annotated[Selection, Depends(baseline)],
    state: Annotated[ApiState, Depends(app_state)],
    view: Annotated[View, Depends(view)],
    shape: Annotated[TreeShape, Depends(tree_shape)],
    absolute: AbsoluteParam = False,
    output_format: DiffFormatParam = DiffFormat.TREE,
) -> Response:
    """Both sides over one tree. `collapsed` has two values on each line, the baseline's first."""
    limit = state.settings.api_max_stacks
    sides = [read_selected_stacks(state.database, side, limit) for side in (selection, baseline)]
    head = selection.as_json() | baseline_json(baseline)
    # How much there is at a moment does not depend on how long one looks.
    if absolute or selection.is_gauge or output_format is DiffFormat.COLLAPSED:  # which has values as they are
        return diff_response(state, sides, head, view, shape, Scaling.VALUE, output_format)
    of_request = _scales_of_request(state, (selection, baseline), sides)
    scaling = Scaling.SHARE if of_request is None else Scaling.REQUEST
    return diff_response(state, sides, head, view, shape, scaling, output_format, of_request)


def baseline_json(baseline: Selection) -> dict[str, Any]:
    """What a diff says of its baseline's selection."""
    return {"baseline_selector": format_selector(baseline.matchers)} | baseline.time_range.as_json("baseline_")


def diff_response(
    state: ApiState,
    sides: Sequence[StackValues],
    head: dict[str, Any],
    view: View,
    shape: TreeShape,
    scaling: Scaling,
    output_format: DiffFormat,
    scales: tuple[float, float] | None = None,
) -> Response:
    """The stacks of a profile and its baseline that `view` keeps; `scales` are those of Scaling.REQUEST. Raises
    ApiError."""
    sides = [side.where(view.keeps(state, side.stack_ids)) for side in sides]
    stack_ids, values = side_by_side(*sides)
    view = view.decided(state, stack_ids, values)
    stacks = join_moved(view.stacks(state, stack_ids), values)
    if output_format is DiffFormat.COLLAPSED:
        shown = Arrangement(shape.invert).shown(stacks)
        graph = build_graph(shown.tree, shown.leaves, values)
        return StreamingResponse(collapsed(graph, stacks.functions), media_type=MEDIA_TYPE)
    for side, prefix in zip(sides, ("", "baseline_"), strict=True):
        head |= {
            f"{prefix}total": side.total,
            f"{prefix}samples": side.samples,
            f"{prefix}stacks": len(side.stack_ids),
            f"{prefix}rollups": side.rollups,
        }
    by_share = scaling is Scaling.SHARE
    scales = _scales_of_share(sides[0].total, sides[1].total) if by_share else scales or (1.0, 1.0)
    head |= {"frames": view.frames.value, "scaling": scaling.value, "scale": scales[0], "baseline_scale": scales[1]}
    evidence = evidence_of(head["profile_type"], sides, None if by_share else scales)
    drawn = draw(stacks, values, Arrangement(shape.invert), shape.root)
    return json_response(head | tree_answer(drawn, shape, scales, evidence))


def evidence_of(profile_type: str, sides: Sequence[StackValues], scales: tuple[float, float] | None) -> Evidence | None:
    """What values of a profile and its baseline were measured by; `scales` as of Evidence. None if a side is empty, and
    for other values than CPU, whose samples stand for different amounts."""
    now, before = sides
    if not is_cpu(profile_type) or min(now.total, before.total, now.samples, before.samples) <= 0:
        return None
    return Evidence((now.total, before.total), (now.samples, before.samples), scales)


def _scales_of_share(total: int, baseline_total: int) -> tuple[float, float]:
    """Factors that make both totals equal to the larger one; 1 if a side is empty."""
    if total <= 0 or baseline_total <= 0:
        return 1.0, 1.0
    larger = max(total, baseline_total)
    return larger / total, larger / baseline_total


def _scales_of_request(
    state: ApiState, selections: Sequence[Selection], sides: Sequence[StackValues]
) -> tuple[float, float] | None:
    """Factors that make each total the CPU of one request. None if a selector does not name an operation, or if a side
    had no requests or no samples."""
    if not all(_names_operation(state, each) for each in selections):
        return None
    cpus = cpu_of_one_request(*(read_operations(state.database, each).matching for each in selections))
    if cpus is None or min(*cpus, *(side.total for side in sides)) <= 0:
        return None
    return cpus[0] / sides[0].total, cpus[1] / sides[1].total


def _names_operation(state: ApiState, selection: Selection) -> bool:
    """Whether the selection is the CPU of an operation, and requests are selected by all of its labels."""
    labels = {matcher.label for matcher in selection.matchers}
    named = any(matcher.label == OPERATION and matcher.operator == "=" for matcher in selection.matchers)
    return named and is_cpu(selection.profile_type) and labels <= operation_labels(state.database)


def side_by_side(profile: StackValues, baseline: StackValues) -> tuple[Ids, Values]:
    """The stack IDs of both sides (n,), and their values (2, n)."""
    stack_ids, rows = np.unique(np.concatenate([profile.stack_ids, baseline.stack_ids]), return_inverse=True)
    values = np.zeros((2, len(stack_ids)), np.int64)
    values[0, rows[: len(profile.stack_ids)]] = profile.values
    values[1, rows[len(profile.stack_ids) :]] = baseline.values
    return stack_ids, values
