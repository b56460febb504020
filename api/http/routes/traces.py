"""Requests: which of them used the most CPU, and what one of them used it for."""

from dataclasses import replace
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from pydantic import Field
from starlette.responses import Response

from api.errors import ApiError
from api.http.answer_model import Answer, described
from api.http.answers import ProfileHead, graph_response, json_response
from api.http.app_state import AppState, app_state
from api.http.cursor import decode_cursor, encode_cursor
from api.http.error_model import error_responses
from api.http.formats import FORMAT_QUERY, Format
from api.http.graph_model import Firefox, Speedscope, TraceTree, graph_responses
from api.http.parameters import ProfileTypeParam, parse_profile_type, parse_trace_id, selection
from api.http.tree_parameters import TreeShape, tree_shape
from api.http.view_parameters import View, view
from api.queries.heaviest_traces import LastTrace, MinCpu, read_heaviest_traces
from api.queries.selection import Selection, unit_of
from api.queries.stack_values import read_stack_values
from api.queries.trace_cpu import read_trace_cpu, trace_conditions
from icestream.topics import DEFAULT_PROFILE_TYPE

router = APIRouter(tags=["traces"])


class Sums(Answer):
    sampled_cpu_ns: int
    thread_cpu_ns: int
    samples: int


class Trace(Sums):
    trace_id: str
    operation: str
    service: str


class Traces(Answer):
    traces: list[Trace]
    next: str | None


class Span(Sums):
    span_id: str
    parent_span_id: str
    name: str
    service: str
    start_unix_nano: int = Field(default=0, description="Missing until the application has reported the span")
    end_unix_nano: int = Field(default=0, description="As start_unix_nano")


class ServiceSums(Sums):
    service: str


class HostSums(Sums):
    host_id: str


class TraceCpu(Sums):
    trace_id: str
    spans: list[Span]
    services: list[ServiceSums]
    hosts: list[HostSums]


class Order(StrEnum):
    SAMPLED_CPU = "sampled_cpu"
    THREAD_CPU = "thread_cpu"


_EXAMPLE = {
    "traces": [
        {
            "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
            "operation": "POST /checkout",
            "service": "checkout",
            "sampled_cpu_ns": 420000000,
            "thread_cpu_ns": 421733112,
            "samples": 42,
        }
    ],
    "next": "WyJzYW1wbGVkX2NwdSIsMTc2OTg2MDgwMF0",
}
_CPU_EXAMPLE = {
    "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    "sampled_cpu_ns": 420000000,
    "thread_cpu_ns": 421733112,
    "samples": 42,
    "spans": [
        {
            "span_id": "00f067aa0ba902b7",
            "parent_span_id": "",
            "name": "POST /checkout",
            "service": "checkout",
            "sampled_cpu_ns": 420000000,
            "thread_cpu_ns": 421733112,
            "samples": 42,
            "start_unix_nano": 1769860800000000000,
            "end_unix_nano": 1769860800500000000,
        }
    ],
    "services": [{"service": "checkout", "sampled_cpu_ns": 420000000, "thread_cpu_ns": 421733112, "samples": 42}],
    "hosts": [{"host_id": "node-7", "sampled_cpu_ns": 420000000, "thread_cpu_ns": 421733112, "samples": 42}],
}


@router.get(
    "/api/v1/traces",
    summary="List the requests that used the most CPU",
    responses=described(Traces, _EXAMPLE),
)
def traces(
    selection: Annotated[Selection, Depends(selection)],
    state: Annotated[AppState, Depends(app_state)],
    order: Annotated[Order, Query(description="Which CPU is largest first.")] = Order.SAMPLED_CPU,
    limit: Annotated[int, Query(ge=1, le=1000, description="Traces on a page.")] = 50,
    cursor: Annotated[str | None, Query(max_length=300, description="`next` of the previous page.")] = None,
    min_sampled_cpu_ns: Annotated[
        int, Query(ge=0, lt=2**63, description="Least sampled CPU of a trace, in nanoseconds.")
    ] = 0,
    min_thread_cpu_ns: Annotated[
        int, Query(ge=0, lt=2**63, description="Least thread CPU of a trace, in nanoseconds.")
    ] = 0,
) -> Response:
    """Heaviest first. `sampled_cpu_ns` is CPU by samples, `thread_cpu_ns` is CPU by the threads' CPU clocks.

    `next` is null on the last page.
    """
    column = f"{order.value}_ns"
    last = None
    if cursor:
        time_range, last = decode_cursor(cursor, order)
        selection = replace(selection, time_range=time_range)
    min_cpu = MinCpu(min_sampled_cpu_ns, min_thread_cpu_ns)
    rows = read_heaviest_traces(state.database, selection, column, min_cpu, last, limit + 1)
    page = rows[:limit]
    next_page = None
    if len(rows) > limit:
        next_page = encode_cursor(order, selection.time_range, LastTrace(page[-1][column], page[-1]["trace_id"]))
    return json_response({"traces": page, "next": next_page})


@router.get(
    "/api/v1/traces/{trace_id}/cpu",
    summary="Break down the CPU of one request",
    responses=graph_responses(TraceCpu | TraceTree | Speedscope | Firefox, _CPU_EXAMPLE) | error_responses(404),
)
def trace_cpu(
    state: Annotated[AppState, Depends(app_state)],
    trace_id: Annotated[str, Path(max_length=64, description="32 hex digits.")],
    view: Annotated[View, Depends(view)],
    shape: Annotated[TreeShape, Depends(tree_shape)],
    profile_type: ProfileTypeParam = DEFAULT_PROFILE_TYPE,
    output_format: Annotated[Format | None, FORMAT_QUERY] = None,
) -> Response:
    """Without `format`, sums: of the whole request, and by span, service and host. With it, a graph as of merge."""
    trace_id = parse_trace_id(trace_id)
    profile_type = parse_profile_type(profile_type)
    cpu = read_trace_cpu(state.database, trace_id, profile_type)
    if cpu is None:
        raise ApiError(
            404,
            "unknown_trace",
            f"nothing is known of the trace {trace_id}",
            "a request shows up a few seconds after it ran if its service uses icestream.tracing;"
            " /api/v1/traces lists the known ones",
        )
    if output_format is None:
        return json_response(cpu)
    conditions = trace_conditions(trace_id, profile_type)
    values = read_stack_values(state.database, "trace_samples", conditions, state.settings.api_max_stacks)
    about = {"profile_type": profile_type, "unit": unit_of(profile_type), "trace_id": trace_id}
    head = ProfileHead(profile_type, None, about, labels={"trace_id": trace_id})
    return graph_response(state, values, head, output_format, view, shape)
