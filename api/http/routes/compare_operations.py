"""What a request costs, compared with a baseline."""

from dataclasses import replace
from itertools import zip_longest
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from api.comparison.functions import Spread, spread_change
from api.comparison.operations import ChangeStatus, OperationChange, Row, compare_operations
from api.comparison.sentence import summarise
from api.errors import bad_request
from api.http.answer_model import described
from api.http.answers import json_response
from api.http.app_state import ApiState, app_state
from api.http.comparison_model import COMPARISON_EXAMPLE, ComparedOperations, operation_json
from api.http.parameters import selection
from api.http.routes.diff import baseline, baseline_json, side_by_side
from api.http.view_parameters import View
from api.queries.operations.confidence import is_cpu
from api.queries.operations.operations import Operations, without_other_labels
from api.queries.operations.two_sides import read_two_sides
from api.queries.selection.sample_operations import OPERATION
from api.queries.selection.selection import Selection
from api.queries.selection.selector import Matcher
from api.queries.stacks.stack_values import read_selected_stacks
from api.statistics.estimates import CONFIDENCE
from api.tree.granularity import Granularity
from api.views.drawn import Arrangement, draw
from api.views.join import join_moved
from api.views.own_frames import FrameChoice

router = APIRouter(tags=["operations of services"])
_EXPLAINED = 10
"""So many of the changed operations have functions: each takes two queries."""
_OWN_CODE = View(None, None, None, FrameChoice.OWN, Granularity.FUNCTION)


@router.get(
    "/api/v1/operations/compare",
    summary="Compare what a request costs with a baseline",
    responses=described(ComparedOperations, COMPARISON_EXAMPLE),
)
def compare(
    selection: Annotated[Selection, Depends(selection)],
    baseline: Annotated[Selection, Depends(baseline)],
    state: Annotated[ApiState, Depends(app_state)],
    limit: Annotated[int, Query(ge=1, le=10_000, description="Operations to list.")] = 100,
    skip_labels: Annotated[
        bool,
        Query(
            description="Leave out what operations are not selected by; if both sides are then the same, nothing"
            " is compared."
        ),
    ] = False,
) -> Response:
    """Compares the operations of two selections by the CPU, the duration and the errors of one request, and says which
    functions a change of CPU went to. Operations are paired by name, and by service if one side has several.

    `status` is that of the CPU: `changed` if the confidence interval of the change excludes 0, `same` if it is within
    5 %, `unsure`, `new` or `gone`. Time ranges are taken in whole minutes, as those of operations; a minute that both
    would have is left out.
    """
    if not is_cpu(selection.profile_type):
        raise bad_request(
            "bad_parameter",
            f"what a request costs is its CPU, and {selection.profile_type} is not",
            "leave out profile_type",
        )
    skipped: list[str] = []
    if skip_labels:
        selection, skipped_of_now = _without_other_labels(state, selection)
        baseline, skipped_of_before = _without_other_labels(state, baseline)
        skipped = sorted({*skipped_of_now, *skipped_of_before})
    head = selection.as_json() | baseline_json(baseline) | {"skipped_labels": skipped}
    if skipped and selection == baseline:
        return json_response(head | _nothing(f"Requests have no label {skipped[0]}, by which the two sides differ."))
    if selection.matchers == baseline.matchers and selection.time_range.overlaps(baseline.time_range):
        raise bad_request(
            "no_baseline", "both sides have the same requests, at least in a part of their times",
            "give another selector, or times that do not overlap",
        )  # fmt: skip
    now, before = read_two_sides(state.database, selection, baseline)
    changes, comparisons = compare_operations(_with_rates(now), _with_rates(before))
    sides = replace(selection, time_range=now.time_range), replace(baseline, time_range=before.time_range)
    spreads = [_spread(state, each, sides) for each in changes[:_EXPLAINED] if each.status is ChangeStatus.CHANGED]
    ranges = now.time_range.as_json() | before.time_range.as_json("baseline_")
    found = {
        "rollups": now.rollups, "baseline_rollups": before.rollups,
        "sentence": summarise(changes, spreads[0] if spreads else None, selection.matchers, baseline.matchers),
        "confidence": CONFIDENCE, "comparisons": comparisons,
        "operations": [operation_json(*each) for each in zip_longest(changes[:limit], spreads[:limit])],
        "count": len(changes),
    }  # fmt: skip
    return json_response(head | ranges | found)


def _without_other_labels(state: ApiState, selection: Selection) -> tuple[Selection, list[str]]:
    kept, skipped = without_other_labels(state.database, selection.matchers)
    return replace(selection, matchers=kept), skipped


def _nothing(sentence: str) -> dict[str, Any]:
    return {
        "rollups": [], "baseline_rollups": [], "sentence": sentence, "confidence": CONFIDENCE, "comparisons": 0,
        "operations": [], "count": 0,
    }  # fmt: skip


def _with_rates(operations: Operations) -> list[Row]:
    """The selected operations, each with its rate of requests."""
    rates = [round(row["requests"] / operations.seconds, 6) for row in operations.matching]
    return [row | {"requests_per_second": rate} for row, rate in zip(operations.matching, rates, strict=True)]


def _spread(state: ApiState, change: OperationChange, sides: tuple[Selection, Selection]) -> Spread:
    """Raises ApiError."""
    stacks = [
        read_selected_stacks(state.database, _of_operation(side, row), state.settings.api_max_stacks)
        for side, row in zip(sides, (change.now, change.before), strict=True)
        if row is not None
    ]
    stack_ids, values = side_by_side(*stacks)
    shown = join_moved(_OWN_CODE.stacks(state, stack_ids), values)
    drawn = draw(shown, values, Arrangement())
    return spread_change(change, drawn.table, shown.functions, [each.samples for each in stacks])


def _of_operation(selection: Selection, row: Row) -> Selection:
    others = [each for each in selection.matchers if each.label not in (OPERATION, "service")]
    exact = [Matcher("service", "=", row["service"]), Matcher(OPERATION, "=", row["operation"])]
    return replace(selection, matchers=(*exact, *others))
