"""A profile as a response in the requested format."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from starlette.responses import Response, StreamingResponse

from api.http.app_state import AppState
from api.http.formats import Format
from api.http.tree_parameters import TreeShape
from api.queries.selection import TimeRange, unit_of
from api.queries.stack_values import StackValues
from api.render import collapsed, pprof, speedscope
from api.render.tree import tree
from api.tree.frame_functions import FrameFunctions
from api.tree.functions import TOTAL
from api.tree.graph import Graph, build_graph
from api.tree.path_id import find_path
from api.tree.picture import make_picture
from api.tree.top_table import top_table


@dataclass(frozen=True)
class ProfileHead:
    """What a profile is of."""

    profile_type: str
    time_range: TimeRange | None
    json: dict[str, Any]  # what a tree says about the query
    labels: dict[str, str] = field(default_factory=dict)  # of all samples in pprof


def graph_response(
    state: AppState, values: StackValues, head: ProfileHead, output_format: Format, shape: TreeShape
) -> Response:
    """Raises ApiError."""
    shape.check(state.settings)
    if output_format is Format.PPROF:
        return _pprof_response(state, values, head)
    stacks = state.stacks.functions_of(values.stack_ids)
    graph = build_graph(stacks.tree, stacks.leaves, values.values[np.newaxis])
    if output_format is Format.COLLAPSED:
        return StreamingResponse(collapsed.collapsed(graph, stacks.functions), media_type=collapsed.MEDIA_TYPE)
    if output_format is Format.SPEEDSCOPE:
        text = speedscope.speedscope(graph, stacks.functions, head.profile_type, unit_of(head.profile_type))
        return StreamingResponse(text, media_type=speedscope.MEDIA_TYPE, headers=_attachment(speedscope.FILE_NAME))
    sums = {"total": values.total, "samples": values.samples, "stacks": len(values.stack_ids)}
    return json_response(head.json | sums | tree_answer(graph, stacks.functions, shape, (1.0,)))


def tree_answer(graph: Graph, functions: FrameFunctions, shape: TreeShape, scales: Sequence[float]) -> dict[str, Any]:
    """The members that describe a tree; `scales` has a factor for the values of each side."""
    root = find_path(graph, functions, shape.root) if shape.root else 0
    picture = make_picture(graph, shape.max_nodes, shape.width, root, scales)
    table = top_table(graph, graph.function, root).without(TOTAL)
    return tree(picture, table, functions, max_functions=shape.max_nodes)


def json_response(body: Any) -> Response:
    """Compact JSON."""
    return Response(json.dumps(body, separators=(",", ":"), ensure_ascii=False), media_type="application/json")


def _pprof_response(state: AppState, values: StackValues, head: ProfileHead) -> Response:
    stacks = state.stacks.addresses_of(values.stack_ids)
    profile = pprof.pprof(values, stacks, head.profile_type, head.time_range, head.labels)
    return Response(profile, media_type=pprof.MEDIA_TYPE, headers=_attachment(pprof.FILE_NAME))


def _attachment(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}
