"""Requests: which of them used the most CPU or took longest, and how many there are of each size."""

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from api.http.answer_model import SELECTION_EXAMPLE, SelectionAnswer, described
from api.http.answers import json_response
from api.http.app_state import ApiState, app_state
from api.http.cursor import decode_cursor, encode_cursor
from api.http.parameters import selection
from api.http.trace_model import TRACES_EXAMPLE, Traces
from api.queries.selection.selection import Selection
from api.queries.traces.entered_requests import (
    RequestFilter,
    bound_ns,
    read_entered,
    read_request_map,
)
from api.queries.traces.heaviest_traces import LastTrace, MinCpu, read_heaviest_traces, read_traces
from api.queries.traces.thinned import thinned_json, thinned_until

router = APIRouter(tags=["traces"])


class RequestOrder(StrEnum):
    CPU = "cpu"
    THREAD_CPU = "thread_cpu"
    SAMPLED_CPU = "sampled_cpu"
    DURATION = "duration"
    START = "start"


def _least(what: str) -> Any:
    return Query(ge=0, lt=2**63, description=f"Least {what} of a trace, in nanoseconds.")


def _below(what: str) -> Any:
    return Query(gt=0, lt=2**63, description=f"Only traces with less {what}, in nanoseconds.")


class RequestStatus(StrEnum):
    ERROR = "error"


_BY_ENTRY = {RequestOrder.DURATION, RequestOrder.START}


@router.get(
    "/api/v1/traces",
    summary="List the requests that used the most CPU",
    responses=described(Traces, TRACES_EXAMPLE),
)
def traces(
    selection: Annotated[Selection, Depends(selection)],
    state: Annotated[ApiState, Depends(app_state)],
    order: Annotated[RequestOrder, Query(description="What is largest first.")] = RequestOrder.CPU,
    limit: Annotated[int, Query(ge=1, le=1000, description="Traces on a page.")] = 50,
    cursor: Annotated[str | None, Query(max_length=300, description="`next` of the previous page.")] = None,
    min_cpu_ns: Annotated[int, _least("CPU")] = 0,
    min_thread_cpu_ns: Annotated[int, _least("thread CPU")] = 0,
    min_sampled_cpu_ns: Annotated[int, _least("sampled CPU")] = 0,
    min_duration_ns: Annotated[int, _least("duration")] = 0,
    below_duration_ns: Annotated[int | None, _below("duration")] = None,
    below_cpu_ns: Annotated[int | None, _below("CPU")] = None,
    status: Annotated[RequestStatus | None, Query(description="error: only requests of which a span failed.")] = None,
) -> Response:
    """The requests with the most CPU come first. `cpu_ns` is thread CPU in the services that have it, and sampled CPU
    in the others.

    `next` is null on the last page. Before `thinned_until`, only those requests are listed that are still whole: the
    heaviest and the slowest ones of each operation, and one in a hundred.

    Where there are very many requests, `complete_above_ns` is a number: a request that used no more CPU than this in
    any minute of one operation may be missing. The CPU of those that are listed is exact.

    In the order of `duration` or `start`, or with a least or greatest duration, a greatest CPU or a status, requests
    are those whose entry span began in the time range, also if they used no CPU. Their CPU is then that of clocks.
    """
    column = f"{order.value}_ns"
    last = None
    if cursor:
        time_range, last = decode_cursor(cursor, order)
        selection = replace(selection, time_range=time_range)
    min_cpu = MinCpu(min_cpu_ns, min_thread_cpu_ns, min_sampled_cpu_ns)
    until = thinned_until(state.database, selection.time_range, selection.matchers)
    wanted = RequestFilter(
        {name: least for name, least in (("duration", min_duration_ns), ("cpu", min_cpu_ns)) if least},
        {name: most for name, most in (("duration", below_duration_ns), ("cpu", below_cpu_ns)) if most is not None},
        status is not None,
    )
    if order in _BY_ENTRY or min_duration_ns or wanted.below_ns or wanted.only_errors:
        by = order.value if order in _BY_ENTRY else "cpu"
        values = read_entered(state.database, selection, by, wanted, last, limit + 1, until is not None)
        ids = list(values)[:limit]
        after = LastTrace(values[ids[-1]], ids[-1]) if len(values) > limit else None
        return json_response(
            {"traces": read_traces(state.database, selection, ids)}
            | {"next": after and encode_cursor(order, selection.time_range, after), "complete_above_ns": None}
            | thinned_json(until)
        )
    found = read_heaviest_traces(state.database, selection, column, min_cpu, last, limit + 1, until is not None)
    page = found.traces[:limit]
    next_page = None
    if len(found.traces) > limit:
        next_page = encode_cursor(order, selection.time_range, LastTrace(page[-1][column], page[-1]["trace_id"]))
    above = {"complete_above_ns": found.complete_above_ns}
    return json_response({"traces": page, "next": next_page} | above | thinned_json(until))


class SizeOfRequest(StrEnum):
    DURATION = "duration"
    CPU = "cpu"


class RequestMapAnswer(SelectionAnswer):
    """Cells in columns: requests that began in a step of time, and have a size of a level."""

    measure: str
    step_ms: int
    bounds_ns: list[int]
    step: list[int]
    level: list[int]
    requests: list[int]
    errors: list[int]
    thinned_until: str | None


_MAP_EXAMPLE = {
    **SELECTION_EXAMPLE,
    "measure": "duration",
    "step_ms": 10000,
    "bounds_ns": [17782795, 31622777, 56234133],
    "step": [0, 0, 1],
    "level": [0, 1, 0],
    "requests": [12, 3, 14],
    "errors": [0, 1, 0],
    "thinned_until": "2026-01-30T00:00:00.000Z",
}


@router.get(
    "/api/v1/requests/map",
    summary="Count requests by time, and by duration or CPU",
    responses=described(RequestMapAnswer, _MAP_EXAMPLE),
)
def request_map(
    selection: Annotated[Selection, Depends(selection)],
    state: Annotated[ApiState, Depends(app_state)],
    measure: Annotated[SizeOfRequest, Query(description="The size of a request.")] = SizeOfRequest.DURATION,
    steps: Annotated[int, Query(ge=1, le=1000, description="Steps that the time range is divided into.")] = 120,
) -> Response:
    """A heat map: cell i has `requests[i]` requests, `errors[i]` with an error, that began in the step `step[i]`. Their
    size is at least `bounds_ns[level[i]]`, and less than the next one of `bounds_ns`."""
    time_range = selection.time_range
    step_ms = max(1, -(-(time_range.end_unix_nano - time_range.start_unix_nano) // (steps * 10**6)))
    found = read_request_map(state.database, selection, measure.value, step_ms)
    low, high = min(found.level, default=0), max(found.level, default=0)
    return json_response(
        selection.as_json()
        | {
            "measure": measure.value,
            "rollups": [],
            "step_ms": step_ms,
            "bounds_ns": [bound_ns(level) for level in range(low, high + 2)],
        }
        | {"step": found.step, "level": [level - low for level in found.level]}
        | {"requests": found.requests, "errors": found.errors}
        | thinned_json(thinned_until(state.database, time_range, selection.matchers))
    )
