"""Requests: which used most CPU, and what one of them used it for."""

from dataclasses import replace
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from starlette.responses import Response

from api.errors import ApiError
from api.http.answers import About, graph_answer, json_response
from api.http.app_state import Context, context
from api.http.cursor import read_cursor, write_cursor
from api.http.formats import DEFAULT_MAX_NODES, FORMAT_QUERY, GRAPH_RESPONSES, Format, MaxNodesParam
from api.queries.heaviest_traces import After, Limits, read_heaviest
from api.queries.selection import ProfileTypeParam, Scope, parse_profile_type, scope
from api.queries.stack_values import read_stack_values
from api.queries.trace_cpu import read_trace, trace_where
from api.queries.trace_id import parse_trace_id
from icestream.topics import DEFAULT_PROFILE_TYPE

router = APIRouter(tags=["traces"])


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
    "next": None,
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
    summary="The requests that used most CPU",
    responses={200: {"content": {"application/json": {"example": _EXAMPLE}}}},
)
def traces(
    scope: Annotated[Scope, Depends(scope)],
    context: Annotated[Context, Depends(context)],
    order: Annotated[Order, Query(description="Which CPU is largest first.")] = Order.SAMPLED_CPU,
    limit: Annotated[int, Query(ge=1, le=1000, description="Traces a page.")] = 50,
    cursor: Annotated[str | None, Query(max_length=300, description="`next` of the page before.")] = None,
    min_sampled_cpu_ns: Annotated[
        int, Query(ge=0, lt=2**63, description="Sampled CPU a trace must have at least.")
    ] = 0,
    min_thread_cpu_ns: Annotated[
        int, Query(ge=0, lt=2**63, description="CPU by clocks a trace must have at least.")
    ] = 0,
) -> Response:
    """Heaviest first. `sampled_cpu_ns` is CPU from samples, `thread_cpu_ns` by the CPU clocks of its threads.

    `next` is null on the last page.
    """
    column = f"{order.value}_ns"
    after = None
    if cursor:
        time, after = read_cursor(cursor, order)
        scope = replace(scope, time=time)
    found = read_heaviest(
        context.database, scope, column, Limits(min_sampled_cpu_ns, min_thread_cpu_ns), after, limit + 1
    )
    page, more = found[:limit], found[limit:]
    next_page = write_cursor(order, scope.time, After(page[-1][column], page[-1]["trace_id"])) if more else None
    return json_response({"traces": page, "next": next_page})


@router.get(
    "/api/v1/traces/{trace_id}/cpu",
    summary="The CPU of one request",
    responses={200: {"content": GRAPH_RESPONSES[200]["content"] | {"application/json": {"example": _CPU_EXAMPLE}}}},
)
def trace_cpu(
    context: Annotated[Context, Depends(context)],
    trace_id: Annotated[str, Path(max_length=64, description="32 hex digits.")],
    profile_type: ProfileTypeParam = DEFAULT_PROFILE_TYPE,
    format: Annotated[Format | None, FORMAT_QUERY] = None,
    max_nodes: MaxNodesParam = DEFAULT_MAX_NODES,
) -> Response:
    """Without `format` the sums: in all, per span, service and host. With it the graph, as of merge."""
    trace_id = parse_trace_id(trace_id)
    profile_type = parse_profile_type(profile_type)
    about = read_trace(context.database, trace_id, profile_type)
    if about is None:
        raise ApiError(
            404,
            "unknown_trace",
            f"nothing is known of the trace {trace_id}",
            "a request shows up a few seconds after it ran, when its service uses icestream.tracing;"
            " /api/v1/traces lists those that are there",
        )
    if format is None:
        return json_response(about)
    where = trace_where(trace_id, profile_type)
    values = read_stack_values(context.database, "trace_samples", [where], context.settings.api_max_stacks)
    head = {"profile_type": profile_type, "unit": profile_type.split(":")[2], "trace_id": trace_id}
    said = About(profile_type, None, head, labels={"trace_id": trace_id})
    return graph_answer(context, values, said, format, max_nodes)
