"""What the slow requests of an operation do that the fast ones do not."""

from collections import Counter
from enum import StrEnum
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Query
from pydantic import Field
from starlette.responses import Response

from api.errors import ApiError, bad_request
from api.http.answer_model import Answer
from api.http.answers import json_response, tree_answer
from api.http.app_state import ApiState, app_state
from api.http.error_model import error_responses
from api.http.graph_model import DiffMembers, graph_responses
from api.http.parameters import selection
from api.http.routes.diff import evidence_of, side_by_side
from api.http.tree_parameters import TreeShape, tree_shape
from api.http.view_parameters import View, view
from api.queries.operations.request_groups import RequestGroup, read_slow_and_fast
from api.queries.selection.sample_operations import OPERATION
from api.queries.selection.selection import Selection
from api.queries.traces.thinned import thinned_json, thinned_until
from api.statistics.evidence import Evidence, NothingChanged
from api.tree.functions import FunctionRows
from api.tree.top_table import TopTable
from api.views.drawn import Arrangement, draw
from api.views.join import join_moved
from api.views.wait_reasons import reasons
from icestream.topics import OFF_CPU_PROFILE_TYPE

router = APIRouter(tags=["operations of services"])
_MOST_DIFFERENCES = 50
_LITTLE = 0.1
"""If off-CPU time explains less of the durations than this, its changes are not why requests are slow."""


class Requests(Answer):
    requests: int
    mean_duration_ns: int
    mean_cpu_ns: int
    bound_ns: int
    mean_waits_ns: dict[str, int] | None = Field(description="Off-CPU: waits by reason, the longest first")


class Difference(Answer):
    name: str
    module: str
    file: str
    flat_per_request: float
    baseline_flat_per_request: float
    cumulative_per_request: float
    baseline_cumulative_per_request: float
    changed: bool | None  # whether the samples support that the flat values differ


class SlowAgainstFast(DiffMembers):
    """Two groups of requests over one tree."""

    profile_type: str
    unit: str
    aggregation: str
    selector: str
    start: str
    end: str
    measure: str
    slow: Requests
    fast: Requests
    differences: list[Difference]
    explained: float | None = Field(
        description="Off-CPU by duration: how much of what slow requests take longer its values are; below 0.1, no"
        " function is said to have changed"
    )
    thinned_until: str | None


class Measure(StrEnum):
    DURATION = "duration"
    CPU = "cpu"


PercentileParam = Annotated[float, Query(gt=0, lt=100, allow_inf_nan=False, description="A percentile.")]


@router.get(
    "/api/v1/operations/slow",
    summary="Compare slow requests with fast ones",
    responses=graph_responses(SlowAgainstFast, binary=False) | error_responses(404),
)
def slow_requests(
    selection: Annotated[Selection, Depends(selection)],
    state: Annotated[ApiState, Depends(app_state)],
    view: Annotated[View, Depends(view)],
    shape: Annotated[TreeShape, Depends(tree_shape)],
    measure: Annotated[
        Measure, Query(description="What makes a request slow: its duration, or its CPU.")
    ] = Measure.DURATION,
    slow: PercentileParam = 95.0,
    fast: PercentileParam = 50.0,
) -> Response:
    """Compares the requests of an operation at or above the percentile `slow` with those at or below the percentile
    `fast`. The graph is scaled to the same number of requests. `differences` lists functions; those whose values per
    request differ most come first. If `thinned_until` is not null, one in a hundred requests is compared.
    """
    selection.check_operations()
    _check(selection, slow, fast)
    until = thinned_until(state.database, selection.time_range, selection.matchers)
    found = read_slow_and_fast(
        state.database, selection, measure.value, slow, fast, state.settings.api_max_stacks, until is not None
    )
    if found is None:
        raise ApiError(
            404, "no_slow_requests", "no requests of this operation are slower than the fast ones",
            "give a longer time range, or other percentiles; /api/v1/operations lists the operations",
        )  # fmt: skip
    sides = [group.stacks.where(view.keeps(state, group.stacks.stack_ids)) for group in found]
    stack_ids, values = side_by_side(*sides)
    view = view.decided(state, stack_ids, values)
    stacks = join_moved(view.stacks(state, stack_ids), values)
    drawn = draw(stacks, values, Arrangement(shape.invert), shape.root)
    most = max(group.requests for group in found)
    scales = (most / found[0].requests, most / found[1].requests)
    explained = _explained(found, selection.profile_type) if measure is Measure.DURATION else None
    evidence = evidence_of(selection.profile_type, sides, scales)
    if explained is not None and explained < _LITTLE:
        evidence = NothingChanged((1, 1), (1, 1), scales)
    head: dict[str, Any] = selection.as_json() | {
        "measure": measure.value,
        "slow": _requests(state, found[0], selection.profile_type),
        "fast": _requests(state, found[1], selection.profile_type),
        "differences": _differences(drawn.table, stacks.functions, found, evidence),
        "explained": explained, "frames": view.frames.value, "scale": scales[0], "baseline_scale": scales[1],
    } | thinned_json(until)  # fmt: skip
    for side, prefix in zip(sides, ("", "baseline_"), strict=True):
        head |= {
            f"{prefix}total": side.total, f"{prefix}samples": side.samples, f"{prefix}stacks": len(side.stack_ids),
        }  # fmt: skip
    return json_response(head | tree_answer(drawn, shape, scales, evidence))


def _check(selection: Selection, slow: float, fast: float) -> None:
    if not any(matcher.label == OPERATION and matcher.operator == "=" for matcher in selection.matchers):
        hint = 'for example {service="shop", operation="GET /checkout"}'
        raise bad_request("bad_selector", "the selector has no operation", hint)
    if slow < fast:
        raise bad_request("bad_parameter", f"slow ({slow}) is below fast ({fast})", "for example slow=95&fast=50")


def _explained(groups: tuple[RequestGroup, RequestGroup], profile_type: str) -> float | None:
    """How much of the time that slow requests take longer is more off-CPU time; None for other profile types."""
    if profile_type != OFF_CPU_PROFILE_TYPE:
        return None
    slow, fast = (group.stacks.total / max(group.requests, 1) for group in groups)
    return round((slow - fast) / max(groups[0].mean_duration_ns - groups[1].mean_duration_ns, 1), 4)


def _requests(state: ApiState, group: RequestGroup, profile_type: str) -> dict[str, Any]:
    waits = None
    if profile_type == OFF_CPU_PROFILE_TYPE:
        by_reason = Counter[str]()
        of_stacks = reasons(state.stacks.functions_of(group.stacks.stack_ids))
        for reason, value in zip(of_stacks, group.stacks.values.tolist(), strict=True):
            by_reason[reason] += value
        waits = {reason: round(value / group.requests) for reason, value in by_reason.most_common()}
    return {
        "requests": group.requests, "mean_duration_ns": group.mean_duration_ns, "mean_cpu_ns": group.mean_cpu_ns,
        "bound_ns": group.bound_ns, "mean_waits_ns": waits,
    }  # fmt: skip


def _differences(
    table: TopTable, functions: FunctionRows, groups: tuple[RequestGroup, RequestGroup], evidence: Evidence | None
) -> list[dict[str, Any]]:
    """Functions; those whose flat values per request differ most come first."""
    requests = np.array([[group.requests] for group in groups])
    flat, cumulative = table.flat / requests, table.cumulative / requests
    changed = evidence.changed(table.flat) if evidence else None
    order = np.lexsort((table.groups, -np.abs(cumulative[0] - cumulative[1]), -np.abs(flat[0] - flat[1])))
    listed = []
    for row in order[:_MOST_DIFFERENCES].tolist():
        function = functions[int(table.groups[row])]
        sums = {
            f"{prefix}{name}_per_request": round(float(values[side, row]), 3)
            for name, values in (("flat", flat), ("cumulative", cumulative))
            for side, prefix in enumerate(("", "baseline_"))
        }
        place = {"name": function.name, "module": function.module, "file": function.file}
        listed.append(place | sums | {"changed": None if changed is None else bool(changed[row])})
    return listed
