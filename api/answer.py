"""A profile as a response in the format asked for."""

import json
from typing import Any

import numpy as np
from starlette.responses import Response, StreamingResponse

from api.context import Context
from api.errors import too_large
from api.formats import Format
from api.graph import build
from api.render import collapsed
from api.render.tree import tree
from api.settings import ApiSettings
from api.stack_values import StackValues


def graph_answer(
    context: Context, values: StackValues, about: dict[str, Any], format: Format, max_nodes: int
) -> Response:
    """`about` describes the query (`Scope.as_json`), and stands first in a tree. Raises ApiError."""
    check_max_nodes(context.settings, max_nodes)
    resolved = context.stacks.functions_of(values.stack_ids)
    graph = build(
        resolved.tree, resolved.leaves, values.values[np.newaxis], max_nodes if format is Format.TREE else None
    )
    if format is Format.COLLAPSED:
        return StreamingResponse(collapsed.collapsed(graph, resolved.functions), media_type=collapsed.MEDIA_TYPE)
    head = {"total": values.total, "samples": values.samples, "stacks": len(values.stack_ids)}
    return json_response(about | head | tree(graph, resolved.functions))


def check_max_nodes(settings: ApiSettings, max_nodes: int) -> None:
    """Raises ApiError when it is more than one answer may have."""
    if max_nodes > settings.api_max_nodes:
        hint = "ask for fewer nodes, or for format=pprof, which has them all"
        raise too_large(f"max_nodes is at most {settings.api_max_nodes} here", hint)


def json_response(body: Any) -> Response:
    """Compact JSON."""
    return Response(json.dumps(body, separators=(",", ":"), ensure_ascii=False), media_type="application/json")
