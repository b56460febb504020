"""What one request used its CPU for."""

from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from starlette.responses import Response

from api.errors import ApiError
from api.http.answers import ProfileHead, check_format, graph_response, json_response
from api.http.app_state import ApiState, app_state
from api.http.error_model import error_responses
from api.http.formats import FORMAT_QUERY, Format
from api.http.graph_model import Firefox, Speedscope, graph_responses
from api.http.parameters import ProfileTypeParam, parse_profile_type, parse_trace_id
from api.http.request_time import request_time
from api.http.trace_model import TRACE_CPU_EXAMPLE, TraceCpuAnswer, TraceTree
from api.http.tree_parameters import TreeShape, tree_shape
from api.http.view_parameters import View, view
from api.queries.operations.confidence import is_cpu
from api.queries.selection.sample_operations import OPERATION
from api.queries.selection.selection import unit_of
from api.queries.selection.selector import Matcher, format_selector
from api.queries.selection.time_range import TimeRange
from api.queries.traces import trace_cpu as queries
from api.queries.traces.thinned import is_thinned
from api.queries.traces.trace_stacks import read_trace_stacks
from icestream.topics import DEFAULT_PROFILE_TYPE

_LIKE_NS = 1800 * 10**9
"""Similar requests ran at most this long before or after a request."""
router = APIRouter(tags=["traces"])


class Scale(StrEnum):
    CPU = "cpu"
    SAMPLED_CPU = "sampled_cpu"


@router.get(
    "/api/v1/traces/{trace_id}/cpu",
    summary="Break down the CPU of one request",
    responses=graph_responses(TraceCpuAnswer | TraceTree | Speedscope | Firefox, TRACE_CPU_EXAMPLE)
    | error_responses(404),
)
def trace_cpu(
    state: Annotated[ApiState, Depends(app_state)],
    trace_id: Annotated[str, Path(max_length=64, description="32 hex digits.")],
    view: Annotated[View, Depends(view)],
    shape: Annotated[TreeShape, Depends(tree_shape)],
    profile_type: ProfileTypeParam = DEFAULT_PROFILE_TYPE,
    scale: Annotated[
        Scale,
        Query(
            description="cpu: a graph's values add up to the CPU of each service; sampled_cpu: they are as measured."
        ),
    ] = Scale.CPU,
    output_format: Annotated[Format | None, FORMAT_QUERY] = None,
) -> Response:
    """Without `format`, returns sums: of the whole request, and by span, service and host. With `format`, returns its
    graph as /api/v1/merge does."""
    trace_id = parse_trace_id(trace_id)
    profile_type = parse_profile_type(profile_type)
    check_format(output_format, view, shape)
    cpu = queries.read_trace_cpu(state.database, trace_id, profile_type, broken_down=output_format is None)
    if cpu is None:
        raise ApiError(
            404,
            "unknown_trace",
            f"nothing is known of the trace {trace_id}",
            "a request shows up a few seconds after it ran if its service uses icestream.tracing;"
            " light requests are kept for some days only; /api/v1/traces lists the known ones",
        )
    about = cpu.head()
    about["thinned"] = is_thinned(state.database, trace_id, cpu.all_services, cpu.time_range)
    if about["thinned"]:  # what is left of its spans need not have the root
        about["service"] = cpu.all_services[0]
    thinned = cpu.time_range if about["thinned"] else None
    operation = queries.read_operation(state.database, trace_id, about["service"], thinned)
    if about["thinned"]:
        about["operation"] = operation
    about["like"] = requests_like(about["service"], operation, cpu.time_range)
    if output_format is None:
        about["time"], of_spans = request_time(state, cpu) if is_cpu(profile_type) else (None, {})
        return json_response(about | queries.breakdown(cpu, of_spans))
    found = read_trace_stacks(state.database, cpu, scale is Scale.CPU, state.settings.api_max_stacks)
    about |= {"profile_type": profile_type, "unit": unit_of(profile_type), "scale": scale.value}
    about["unsampled_cpu_ns"] = found.unsampled_cpu_ns
    head = ProfileHead(profile_type, None, about, labels={"trace_id": trace_id})
    return graph_response(state, found.stacks, head, output_format, view, shape)


def requests_like(service: str, operation: str, time_range: TimeRange) -> dict[str, Any]:
    """Parameters of merge for the graph of requests like one: of its service and operation, in the hour around it."""
    around = TimeRange(max(0, time_range.start_unix_nano - _LIKE_NS), time_range.end_unix_nano + _LIKE_NS)
    labels = {"service": service} | ({OPERATION: operation} if operation else {})
    matchers = tuple(Matcher(label, "=", value) for label, value in labels.items())
    return {"selector": format_selector(matchers)} | around.as_json()
