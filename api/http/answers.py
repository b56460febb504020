"""A profile as a response in the format asked for."""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from starlette.responses import Response, StreamingResponse

from api.errors import too_large
from api.http.app_state import Context
from api.http.formats import Format
from api.queries.stack_values import StackValues
from api.queries.time_range import TimeRange
from api.render import collapsed, pprof, speedscope
from api.render.tree import tree
from api.settings import ApiSettings
from api.tree.graph import build


@dataclass(frozen=True)
class About:
    """What a profile is of."""

    profile_type: str
    time: TimeRange | None
    head: dict[str, Any]  # what a tree says of the query
    labels: dict[str, str] = field(default_factory=dict)  # of its samples in pprof


def graph_answer(context: Context, values: StackValues, about: About, format: Format, max_nodes: int) -> Response:
    """Raises ApiError."""
    check_max_nodes(context.settings, max_nodes)
    if format is Format.PPROF:
        return _pprof(context, values, about)
    resolved = context.stacks.functions_of(values.stack_ids)
    most = max_nodes if format is Format.TREE else None
    graph = build(resolved.tree, resolved.leaves, values.values[np.newaxis], most)
    if format is Format.COLLAPSED:
        return StreamingResponse(collapsed.collapsed(graph, resolved.functions), media_type=collapsed.MEDIA_TYPE)
    if format is Format.SPEEDSCOPE:
        unit = about.profile_type.split(":")[2]
        text = speedscope.speedscope(graph, resolved.functions, about.profile_type, unit)
        return StreamingResponse(text, media_type=speedscope.MEDIA_TYPE, headers=_file(speedscope.FILE_NAME))
    head = {"total": values.total, "samples": values.samples, "stacks": len(values.stack_ids)}
    return json_response(about.head | head | tree(graph, resolved.functions))


def check_max_nodes(settings: ApiSettings, max_nodes: int) -> None:
    """Raises ApiError when it is more than one answer may have."""
    if max_nodes > settings.api_max_nodes:
        hint = "ask for fewer nodes, or for format=pprof, which has them all"
        raise too_large(f"max_nodes is at most {settings.api_max_nodes} here", hint)


def json_response(body: Any) -> Response:
    """Compact JSON."""
    return Response(json.dumps(body, separators=(",", ":"), ensure_ascii=False), media_type="application/json")


def _pprof(context: Context, values: StackValues, about: About) -> Response:
    stacks = context.stacks.addresses_of(values.stack_ids)
    data = pprof.pprof(values, stacks, about.profile_type, about.time, about.labels)
    return Response(data, media_type=pprof.MEDIA_TYPE, headers=_file(pprof.FILE_NAME))


def _file(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}
