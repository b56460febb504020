"""A profile as a response in the requested format."""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from starlette.responses import Response, StreamingResponse

from api.errors import too_large
from api.http.app_state import AppState
from api.http.formats import Format
from api.queries.selection import TimeRange, unit_of
from api.queries.stack_values import StackValues
from api.render import collapsed, pprof, speedscope
from api.render.tree import tree
from api.settings import ApiSettings
from api.tree.graph import build_graph


@dataclass(frozen=True)
class ProfileHead:
    """What a profile is of."""

    profile_type: str
    time_range: TimeRange | None
    json: dict[str, Any]  # what a tree says about the query
    labels: dict[str, str] = field(default_factory=dict)  # of all samples in pprof


def graph_response(
    state: AppState, values: StackValues, head: ProfileHead, output_format: Format, max_nodes: int
) -> Response:
    """Raises ApiError."""
    check_max_nodes(state.settings, max_nodes)
    if output_format is Format.PPROF:
        return _pprof_response(state, values, head)
    stacks = state.stacks.functions_of(values.stack_ids)
    limit = max_nodes if output_format is Format.TREE else None
    graph = build_graph(stacks.tree, stacks.leaves, values.values[np.newaxis], limit)
    if output_format is Format.COLLAPSED:
        return StreamingResponse(collapsed.collapsed(graph, stacks.functions), media_type=collapsed.MEDIA_TYPE)
    if output_format is Format.SPEEDSCOPE:
        text = speedscope.speedscope(graph, stacks.functions, head.profile_type, unit_of(head.profile_type))
        return StreamingResponse(text, media_type=speedscope.MEDIA_TYPE, headers=_attachment(speedscope.FILE_NAME))
    sums = {"total": values.total, "samples": values.samples, "stacks": len(values.stack_ids)}
    return json_response(head.json | sums | tree(graph, stacks.functions))


def check_max_nodes(settings: ApiSettings, max_nodes: int) -> None:
    """Raises ApiError if one answer may not have that many nodes."""
    if max_nodes > settings.api_max_nodes:
        hint = "ask for fewer nodes, or for format=pprof, which has them all"
        raise too_large(f"max_nodes is at most {settings.api_max_nodes} here", hint)


def json_response(body: Any) -> Response:
    """Compact JSON."""
    return Response(json.dumps(body, separators=(",", ":"), ensure_ascii=False), media_type="application/json")


def _pprof_response(state: AppState, values: StackValues, head: ProfileHead) -> Response:
    stacks = state.stacks.addresses_of(values.stack_ids)
    profile = pprof.pprof(values, stacks, head.profile_type, head.time_range, head.labels)
    return Response(profile, media_type=pprof.MEDIA_TYPE, headers=_attachment(pprof.FILE_NAME))


def _attachment(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}
