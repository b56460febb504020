"""Requests: which of them used the most CPU."""

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from api.http.answer_model import described
from api.http.answers import json_response
from api.http.app_state import ApiState, app_state
from api.http.cursor import decode_cursor, encode_cursor
from api.http.parameters import selection
from api.http.trace_model import TRACES_EXAMPLE, Traces
from api.queries.selection.selection import Selection
from api.queries.traces.heaviest_traces import LastTrace, MinCpu, read_heaviest_traces
from api.queries.traces.thinned import thinned_json, thinned_until

router = APIRouter(tags=["traces"])


class RequestOrder(StrEnum):
    CPU = "cpu"
    THREAD_CPU = "thread_cpu"
    SAMPLED_CPU = "sampled_cpu"


def _least(what: str) -> Any:
    return Query(ge=0, lt=2**63, description=f"Least {what} of a trace, in nanoseconds.")


@router.get(
    "/api/v1/traces",
    summary="List the requests that used the most CPU",
    responses=described(Traces, TRACES_EXAMPLE),
)
def traces(
    selection: Annotated[Selection, Depends(selection)],
    state: Annotated[ApiState, Depends(app_state)],
    order: Annotated[RequestOrder, Query(description="Which CPU is largest first.")] = RequestOrder.CPU,
    limit: Annotated[int, Query(ge=1, le=1000, description="Traces on a page.")] = 50,
    cursor: Annotated[str | None, Query(max_length=300, description="`next` of the previous page.")] = None,
    min_cpu_ns: Annotated[int, _least("CPU")] = 0,
    min_thread_cpu_ns: Annotated[int, _least("thread CPU")] = 0,
    min_sampled_cpu_ns: Annotated[int, _least("sampled CPU")] = 0,
) -> Response:
    """The requests with the most CPU come first. `cpu_ns` is thread CPU in the services that have it, and sampled CPU
    in the others.

    `next` is null on the last page. Before `thinned_until`, only those requests are listed that are still whole: the
    heaviest and the slowest ones of each operation, and one in a hundred.

    Where there are very many requests, `complete_above_ns` is a number: a request that used no more CPU than this in
    any minute of one operation may be missing. The CPU of those that are listed is exact.
    """
    column = f"{order.value}_ns"
    last = None
    if cursor:
        time_range, last = decode_cursor(cursor, order)
        selection = replace(selection, time_range=time_range)
    min_cpu = MinCpu(min_cpu_ns, min_thread_cpu_ns, min_sampled_cpu_ns)
    until = thinned_until(state.database, selection.time_range, selection.matchers)
    found = read_heaviest_traces(state.database, selection, column, min_cpu, last, limit + 1, until is not None)
    page = found.traces[:limit]
    next_page = None
    if len(found.traces) > limit:
        next_page = encode_cursor(order, selection.time_range, LastTrace(page[-1][column], page[-1]["trace_id"]))
    above = {"complete_above_ns": found.complete_above_ns}
    return json_response({"traces": page, "next": next_page} | above | thinned_json(until))
