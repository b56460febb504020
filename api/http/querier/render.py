"""GET /pyroscope/render-diff and /pyroscope/render: Pyroscope's older calls. Profiles Drilldown calls the first for its
comparison (until version 1.x), and the second for its export. Answers are flamebearers: the levels of
api/render/flamebearer.py in JSON, as in Pyroscope's pkg/og/structs/flamebearer. Errors are those of the other calls."""

import time
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.datastructures import QueryParams
from starlette.responses import JSONResponse, Response

from api.errors import ApiError
from api.http.app_state import ApiState, app_state
from api.http.connect import ConnectError, error_response, invalid, unimplemented
from api.http.querier.profiles import diff, select_merge_stacktraces
from api.http.querier.requests import parse_range, parse_selection
from api.queries.stacks.timeline import read_timeline
from icestream.pyroscope.querier_pb2 import DiffRequest, FlameGraph, FlameGraphDiff, SelectMergeStacktracesRequest
from icestream.times import TimeError, parse_unix_nano

router = APIRouter()

_MAX_NODES = ("max-nodes", "maxNodes")
_STEPS_S = (15, 30, 60, 300, 900, 3600, 21_600, 86_400)
_MAX_STEPS = 1500
_PER_SECOND = {13: 10**3, 16: 10**6, 19: 10**9}  # of Unix times, by their number of digits

State = Annotated[ApiState, Depends(app_state)]
Answer = dict[str, Any]


@router.get("/pyroscope/render-diff", include_in_schema=False)
def render_diff(request: Request, state: State) -> Response:
    return _answered(lambda: _render_diff(state, request.query_params))


@router.get("/pyroscope/render", include_in_schema=False)
def render(request: Request, state: State) -> Response:
    return _answered(lambda: _render(state, request.query_params))


def _answered(answer: Callable[[], Answer]) -> Response:
    try:
        return JSONResponse(answer())
    except (ConnectError, ApiError) as error:
        return error_response(error)


def _render_diff(state: ApiState, given: QueryParams) -> Answer:
    names = [[f"{side}{name}" for name in ("Query", "From", "Until")] for side in ("left", "right")]
    _refuse_others(given, *names[0], *names[1])
    left, right = (_selected(given, *side) for side in names)
    if left.profile_typeID != right.profile_typeID:
        raise invalid("leftQuery and rightQuery have different profile types")
    graph = diff(state, DiffRequest(left=left, right=right)).flamegraph
    answer = _flamebearer(graph, left.profile_typeID, "double")
    return answer | {"timeline": None, "leftTicks": graph.leftTicks, "rightTicks": graph.rightTicks}


def _render(state: ApiState, given: QueryParams) -> Answer:
    _refuse_others(given, "query", "from", "until", "format")
    if given.get("format", "json") != "json":
        raise unimplemented(f"format: {given['format'][:60]!r} is not json")
    request = _selected(given, "query", "from", "until")
    graph = select_merge_stacktraces(state, request).flamegraph
    return _flamebearer(graph, request.profile_typeID, "single") | {"timeline": _timeline(state, request)}


def _refuse_others(given: QueryParams, *known: str) -> None:
    for name in given:
        if name not in (*known, *_MAX_NODES):
            raise unimplemented(f"{name[:60]}: icestream does not have this parameter")


def _selected(given: QueryParams, query: str, start: str, end: str) -> SelectMergeStacktracesRequest:
    """What the parameters of these names select. Raises ConnectError."""
    profile_type, brace, matchers = given.get(query, "").partition("{")
    if not profile_type.strip():
        raise invalid(f"{query}: begins with a profile type, as in process_cpu:cpu:nanoseconds:cpu:nanoseconds{{}}")
    max_nodes = next((given[name] for name in _MAX_NODES if given.get(name)), "0")
    if not max_nodes.removeprefix("-").isdecimal() or len(max_nodes) > 15:
        raise invalid(f"max-nodes: not a number: {max_nodes[:60]!r}")
    return SelectMergeStacktracesRequest(
        profile_typeID=profile_type.strip(),
        label_selector=brace + matchers or "{}",
        start=_unix_milli(given, start),
        end=_unix_milli(given, end),
        max_nodes=int(max_nodes),
    )


def _unix_milli(given: QueryParams, name: str) -> int:
    """Unix time in seconds, milliseconds, microseconds or nanoseconds; or as in all queries; now if it is missing."""
    text = given.get(name, "now").strip()
    try:
        if text.isascii() and text.isdecimal() and len(text) in _PER_SECOND:
            return int(text) * 1000 // _PER_SECOND[len(text)]
        return parse_unix_nano(text, time.time_ns()) // 10**6
    except (TimeError, OverflowError) as error:
        raise invalid(f"{name}: {error}") from None


def _flamebearer(graph: FlameGraph | FlameGraphDiff, profile_type: str, kind: str) -> Answer:
    name, units = profile_type.split(":")[1:3]
    sample_rate = 100
    if name == "cpu":  # as Pyroscope has it: a sample of a nanosecond
        units, sample_rate = "samples", 10**9
    elif name in ("inuse_objects", "alloc_objects", "goroutine", "samples"):
        units = "objects"
    return {
        "version": 1,
        "flamebearer": {
            "names": list(graph.names),
            "levels": [list(level.values) for level in graph.levels],
            "numTicks": graph.total,
            "maxSelf": graph.max_self,
        },
        "metadata": {"format": kind, "spyName": "", "sampleRate": sample_rate, "units": units, "name": name},
        "groups": None,
        "heatmap": None,
    }


def _timeline(state: ApiState, request: SelectMergeStacktracesRequest) -> Answer:
    """Sums of each step. Times and steps are in seconds."""
    length_s = (request.end - request.start) / 1000
    step_s = next((each for each in _STEPS_S if length_s / each <= _MAX_STEPS), _STEPS_S[-1])
    selection = parse_selection(request.profile_typeID, request.label_selector, parse_range(request.start, request.end))
    if selection is None:
        return {"startTime": request.start // 1000, "samples": [], "durationDelta": step_s, "watermarks": None}
    sums = read_timeline(state.database, selection, step_s * 1000, ())
    return {
        "startTime": int(sums.times_unix_milli[0]) // 1000,
        "samples": sums.values[0].tolist(),
        "durationDelta": step_s,
        "watermarks": None,
    }
