"""What services do: their operations, with requests, CPU and durations."""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import Field
from starlette.responses import Response

from api.comparison.operations import compare_with_before
from api.http.answer_model import Answer, SelectionAnswer, described
from api.http.answers import json_response
from api.http.app_state import ApiState, app_state
from api.http.comparison_model import ComparedCost, ComparedErrors, cost_json, errors_json
from api.http.parameters import selection
from api.queries.operations.operations import check_groups, read_operations, without_other_labels
from api.queries.selection.sample_operations import OPERATION
from api.queries.selection.selection import Selection
from api.queries.selection.selector import Matcher, format_selector

router = APIRouter(tags=["operations of services"])


class Operation(Answer):
    service: str
    operation: str
    labels: dict[str, str] = Field(description="Those of `by` that its requests have")
    selector: str = Field(description="Selects its requests and samples")
    sampled_cpu_ns: int
    sampled_cpu_low_ns: int | None
    sampled_cpu_high_ns: int | None
    previous_sampled_cpu_ns: int
    samples: int
    thread_cpu_ns: int
    previous_thread_cpu_ns: int
    requests: int
    previous_requests: int
    requests_per_second: float
    errors: int = Field(description="Requests whose entry span ended with an error")
    error_rate: float | None = Field(description="Their share of the requests; null where there are none")
    previous_errors: int
    share: float
    cpu_change: ComparedCost | None = Field(
        description="Change of a request, against the period before; null: no requests"
    )
    duration_change: ComparedCost | None
    error_change: ComparedErrors | None
    mean_cpu_ns: int | None
    p50_cpu_ns: int | None
    p95_cpu_ns: int | None
    p99_cpu_ns: int | None
    mean_duration_ns: int | None
    p50_duration_ns: int | None
    p95_duration_ns: int | None
    p99_duration_ns: int | None


class Unattributed(Answer):
    service: str
    labels: dict[str, str]
    selector: str
    sampled_cpu_ns: int
    sampled_cpu_low_ns: int | None
    sampled_cpu_high_ns: int | None
    previous_sampled_cpu_ns: int
    samples: int
    thread_cpu_ns: int
    previous_thread_cpu_ns: int
    share: float


class OperationsAnswer(SelectionAnswer):
    request_labels: list[str] = Field(description="Labels that requests have: they select and split operations")
    skipped_labels: list[str] = Field(description="Labels of the given selector that skip_labels has left out of it")
    operations: list[Operation]
    count: int
    unattributed: list[Unattributed]
    next: int | None
    total: int
    samples: int


class OperationOrder(StrEnum):
    """Columns that operations can be sorted by."""

    THREAD_CPU = "thread_cpu"
    SAMPLED_CPU = "sampled_cpu"
    REQUESTS = "requests"
    MEAN_CPU = "mean_cpu"
    P50_CPU = "p50_cpu"
    P95_CPU = "p95_cpu"
    P99_CPU = "p99_cpu"
    MEAN_DURATION = "mean_duration"
    P50_DURATION = "p50_duration"
    P95_DURATION = "p95_duration"
    P99_DURATION = "p99_duration"
    GROWTH = "growth"
    NAME = "name"


_EXAMPLE = {
    "profile_type": "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
    "unit": "nanoseconds",
    "aggregation": "sum",
    "selector": '{service="shop"}',
    "start": "2026-01-31T12:00:00.000Z",
    "end": "2026-01-31T12:15:00.000Z",
    "rollups": [],
    "request_labels": ["service_version"],
    "skipped_labels": [],
    "operations": [
        {
            "service": "shop", "operation": "GET /checkout", "labels": {},
            "selector": '{service="shop", operation="GET /checkout"}', "sampled_cpu_ns": 36000000000,
            "sampled_cpu_low_ns": 33352277858, "sampled_cpu_high_ns": 38802009490,
            "previous_sampled_cpu_ns": 30000000000, "samples": 684, "thread_cpu_ns": 35900000000,
            "previous_thread_cpu_ns": 30100000000, "requests": 900, "previous_requests": 890,
            "requests_per_second": 1.0, "errors": 9, "error_rate": 0.01, "previous_errors": 9, "share": 0.75,
            "cpu_change": {
                "status": "changed", "mean_ns": 39900000, "baseline_mean_ns": 33800000, "change": 0.18,
                "change_low": 0.14, "change_high": 0.222,
            },
            "duration_change": {
                "status": "same", "mean_ns": 71000000, "baseline_mean_ns": 70500000, "change": 0.007,
                "change_low": -0.03, "change_high": 0.045,
            },
            "error_change": {
                "status": "same", "rate": 0.01, "baseline_rate": 0.0101, "change": -0.0001, "change_low": -0.01,
                "change_high": 0.0098,
            },
            "mean_cpu_ns": 39900000, "p50_cpu_ns": 38000000, "p95_cpu_ns": 61000000, "p99_cpu_ns": 80000000,
            "mean_duration_ns": 71000000, "p50_duration_ns": 66000000, "p95_duration_ns": 120000000,
            "p99_duration_ns": 240000000,
        }
    ],
    "count": 101,
    "unattributed": [
        {
            "service": "shop", "labels": {}, "selector": '{service="shop", operation=""}',
            "sampled_cpu_ns": 12000000000,
            "sampled_cpu_low_ns": 10492750224, "sampled_cpu_high_ns": 13662946471,
            "previous_sampled_cpu_ns": 11000000000, "samples": 228,
            "thread_cpu_ns": 0, "previous_thread_cpu_ns": 0, "share": 0.25,
        }
    ],
    "next": 100,
    "total": 60000000000,
    "samples": 1140,
}  # fmt: skip


@router.get(
    "/api/v1/operations",
    summary="List the operations of services",
    responses=described(OperationsAnswer, _EXAMPLE),
)
def operations(
    selection: Annotated[Selection, Depends(selection)],
    state: Annotated[ApiState, Depends(app_state)],
    order: Annotated[
        OperationOrder, Query(description="Which column is largest first; name: in the order of names.")
    ] = (OperationOrder.THREAD_CPU),
    limit: Annotated[int, Query(ge=1, le=10_000, description="Operations on a page.")] = 100,
    offset: Annotated[int, Query(ge=0, le=10_000_000, description="`next` of the previous page.")] = 0,
    by: Annotated[
        str | None, Query(description="Labels of requests, separated by commas: a row for each of their values.")
    ] = None,
    skip_labels: Annotated[
        bool, Query(description="Leave out what operations are not selected by, instead of refusing it.")
    ] = False,
) -> Response:
    """Lists the operations of services, and for each of these services what belongs to no operation: together they are
    all samples of the service. Percentiles are within 1 %. `share` is the share of the sampled CPU of the service.

    The time range is taken in whole minutes, and from a whole hour on if it has more than 12 hours. Where there are
    very many requests whose hours have no rollups yet, the CPU of a request in percentiles is that of the pieces in
    which it was stored, and samples whose operation was not known as they were stored are unattributed.

    Members that begin with `previous_` are about the period of the same length just before the time range. Changes are
    those of one request against that period, with confidence intervals as in `/api/v1/operations/compare`.
    """
    selection.check_operations()
    skipped: list[str] = []
    if skip_labels:
        kept, skipped = without_other_labels(state.database, selection.matchers)
        selection = replace(selection, matchers=kept)
    labels = [label.strip() for label in by.split(",") if label.strip()] if by else []
    check_groups(state.database, labels)
    found = read_operations(state.database, selection, labels)
    totals: dict[str, int] = {}
    for row in found.all:
        totals[row["service"]] = totals.get(row["service"], 0) + row["sampled_cpu_ns"]
    for row in found.all:
        total = totals[row["service"]]
        row["selector"] = format_selector(_matchers(row, labels, selection))
        row["share"] = round(row["sampled_cpu_ns"] / total, 6) if total else 0.0
        row["requests_per_second"] = round(row["requests"] / found.seconds, 6)
        row["error_rate"] = round(row["errors"] / row["requests"], 6) if row["requests"] else None
    for row, change in zip(found.matching, compare_with_before(found.matching), strict=True):
        row["cpu_change"], row["duration_change"] = (
            cost_json(cost) if cost else None for cost in ((change.cpu, change.duration) if change else (None, None))
        )
        row["error_change"] = errors_json(change) if change else None
        row["growth"] = change.cpus if change else 0.0
    rows = sorted(found.matching, key=lambda row: _key(row, order))
    following = offset + limit if offset + limit < len(rows) else None
    return json_response(
        selection.as_json()
        | found.time_range.as_json()
        | {
            "rollups": found.rollups,
            "request_labels": list(state.database.request_labels),
            "skipped_labels": skipped,
            "operations": [_members(row, Operation) for row in rows[offset : offset + limit]],
            "count": len(rows),
            "unattributed": [_members(row, Unattributed) for row in found.unattributed],
            "next": following,
        }
        | {name: sum(row[column] for row in found.all if row["matches"]) for name, column in _TOTALS.items()}
    )


def _matchers(row: dict[str, Any], by: Sequence[str], selection: Selection) -> tuple[Matcher, ...]:
    """Those of a row: its service, its operation, and its labels or what was selected of them."""
    own = {"service": row["service"], OPERATION: row["operation"]} | {name: row["labels"].get(name, "") for name in by}
    asked = (matcher for matcher in selection.matchers if matcher.label not in own)
    return (*(Matcher(name, "=", value) for name, value in own.items()), *asked)


_TOTALS = {"total": "sampled_cpu_ns", "samples": "samples"}
"""Sums of all operations that match, and of what belongs to none if that matches, too."""


def _key(row: dict[str, Any], order: OperationOrder) -> tuple[float, str, str, list[tuple[str, str]]]:
    if order is OperationOrder.NAME:
        value = 0.0
    elif order is OperationOrder.REQUESTS:
        value = row["requests"]
    elif order is OperationOrder.GROWTH:
        value = row["growth"]
    else:
        value = row[f"{order.value}_ns"] or 0
    return -value, row["service"], row["operation"], list(row["labels"].items())


def _members(row: dict[str, Any], model: type[Answer]) -> dict[str, Any]:
    return {name: row[name] for name in model.model_fields}
