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
from api.http.view_parameters import View
from api.queries.selection import TimeRange, unit_of
from api.queries.stack_values import StackValues
from api.render import collapsed, pprof, speedscope
from api.render.tree import tree
from api.tree.graph import build_graph
from api.tree.picture import make_picture
from api.views.drawn import Arrangement, Drawn, draw
from api.views.labels_first import LabelValues


@dataclass(frozen=True)
class ProfileHead:
    """What a profile is of."""

    profile_type: str
    time_range: TimeRange | None
    json: dict[str, Any]  # what a tree says about the query
    labels: dict[str, str] = field(default_factory=dict)  # of all samples in pprof


def graph_response(
    state: AppState,
    values: StackValues,
    head: ProfileHead,
    output_format: Format,
    view: View,
    shape: TreeShape,
    labels: LabelValues | None = None,
) -> Response:
    """The stacks that `view` keeps, below values of `labels`. Raises ApiError."""
    shape.check(state.settings)
    if output_format is Format.PPROF:
        view.check_has_all_frames(shape.invert or labels is not None)
    keep = view.keeps(state, values.stack_ids)
    if keep is not None:
        values = values.where(keep)
        labels = labels and labels.where(keep)
    if output_format is Format.PPROF:
        return _pprof_response(state, values, head)
    stacks = view.stacks(state, values.stack_ids)
    arrangement, sides = Arrangement(shape.invert, labels), values.values[np.newaxis]
    if output_format is Format.TREE:
        sums = {"total": values.total, "samples": values.samples, "stacks": len(np.unique(values.stack_ids))}
        drawn = draw(stacks, sides, arrangement, shape.root)
        return json_response(head.json | sums | tree_answer(drawn, shape, (1.0,)))
    shown = arrangement.shown(stacks)
    graph = build_graph(shown.tree, shown.leaves, sides)
    if output_format is Format.COLLAPSED:
        return StreamingResponse(collapsed.collapsed(graph, shown.functions), media_type=collapsed.MEDIA_TYPE)
    text = speedscope.speedscope(graph, shown.functions, head.profile_type, unit_of(head.profile_type))
    return StreamingResponse(text, media_type=speedscope.MEDIA_TYPE, headers=_attachment(speedscope.FILE_NAME))


def tree_answer(drawn: Drawn, shape: TreeShape, scales: Sequence[float]) -> dict[str, Any]:
    """The members that describe a tree; `scales` has a factor for the values of each side."""
    picture = make_picture(drawn.graph, shape.max_nodes, shape.width, drawn.root, scales)
    return tree(picture, drawn.table, drawn.stacks.functions, max_functions=shape.max_nodes)


def json_response(body: Any) -> Response:
    """Compact JSON."""
    return Response(json.dumps(body, separators=(",", ":"), ensure_ascii=False), media_type="application/json")


def _pprof_response(state: AppState, values: StackValues, head: ProfileHead) -> Response:
    stacks = state.stacks.addresses_of(values.stack_ids)
    profile = pprof.pprof(values, stacks, head.profile_type, head.time_range, head.labels)
    return StreamingResponse(profile, media_type=pprof.MEDIA_TYPE, headers=_attachment(pprof.FILE_NAME))


def _attachment(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}
