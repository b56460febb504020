"""A profile against another."""

from typing import Annotated

import numpy as np
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response, StreamingResponse

from api.errors import bad_request
from api.http.answers import check_max_nodes, json_response
from api.http.app_state import Context, context
from api.http.formats import DEFAULT_MAX_NODES, GRAPH_RESPONSES, DiffFormat, DiffFormatParam, MaxNodesParam
from api.queries.selection import EndParam, Scope, SelectorParam, StartParam, parse_selector, scope
from api.queries.selector import format_selector
from api.queries.stack_values import StackValues, read_stack_values
from api.queries.time_range import parse_range
from api.render.collapsed import MEDIA_TYPE, collapsed
from api.render.tree import tree
from api.tree.graph import Values, build
from api.tree.hash_index import Keys

router = APIRouter(tags=["profiles"])


def baseline(
    scope: Annotated[Scope, Depends(scope)],
    baseline_selector: SelectorParam | None = None,
    baseline_start: StartParam = None,
    baseline_end: EndParam = None,
) -> Scope:
    """What is compared with; what is not given is as in the profile. Raises ApiError."""
    if not (baseline_selector or baseline_start or baseline_end):
        hint = "give baseline_selector, baseline_start or baseline_end; what is not given is as in the profile"
        raise bad_request("no_baseline", "nothing to compare with", hint)
    matchers = parse_selector(baseline_selector, "baseline_selector") if baseline_selector else scope.matchers
    return Scope(scope.profile_type, matchers, parse_range(baseline_start, baseline_end, scope.time, "baseline_"))


@router.get("/api/v1/diff", summary="Compare a profile with a baseline", responses=GRAPH_RESPONSES)
def diff(
    scope: Annotated[Scope, Depends(scope)],
    baseline: Annotated[Scope, Depends(baseline)],
    context: Annotated[Context, Depends(context)],
    absolute: Annotated[
        bool, Query(description="Compare values as they are; else the smaller side is scaled up to the larger.")
    ] = False,
    format: DiffFormatParam = DiffFormat.TREE,
    max_nodes: MaxNodesParam = DEFAULT_MAX_NODES,
) -> Response:
    """Both sides over one tree. `collapsed` is a line a stack with two values, the baseline's first."""
    check_max_nodes(context.settings, max_nodes)
    most = context.settings.api_max_stacks
    sides = [read_stack_values(context.database, "samples", side.branches(), most) for side in (scope, baseline)]
    stack_ids, values = side_by_side(*sides)
    resolved = context.stacks.functions_of(stack_ids)
    graph = build(resolved.tree, resolved.leaves, values, max_nodes if format is DiffFormat.TREE else None)
    if format is DiffFormat.COLLAPSED:
        return StreamingResponse(collapsed(graph, resolved.functions), media_type=MEDIA_TYPE)
    about = scope.as_json() | {
        "baseline_selector": format_selector(baseline.matchers),
        **baseline.time.as_json("baseline_"),
    }
    for side, prefix in zip(sides, ("", "baseline_"), strict=True):
        about |= {
            f"{prefix}total": side.total,
            f"{prefix}samples": side.samples,
            f"{prefix}stacks": len(side.stack_ids),
        }
    scales = (1.0, 1.0) if absolute else relative_scales(sides[0].total, sides[1].total)
    about |= {"relative": not absolute, "scale": scales[0], "baseline_scale": scales[1]}
    return json_response(about | tree(graph, resolved.functions))


def relative_scales(total: int, baseline_total: int) -> tuple[float, float]:
    """Factors that make both totals equal to the larger one; 1 where a side is empty."""
    if total <= 0 or baseline_total <= 0:
        return 1.0, 1.0
    larger = max(total, baseline_total)
    return larger / total, larger / baseline_total


def side_by_side(a: StackValues, b: StackValues) -> tuple[Keys, Values]:
    """All stack IDs of both, and their values (2, n)."""
    stack_ids, rows = np.unique(np.concatenate([a.stack_ids, b.stack_ids]), return_inverse=True)
    values = np.zeros((2, len(stack_ids)), np.int64)
    values[0, rows[: len(a.stack_ids)]] = a.values
    values[1, rows[len(a.stack_ids) :]] = b.values
    return stack_ids, values
