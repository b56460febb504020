"""A profile as a response in the requested format."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from starlette.responses import Response, StreamingResponse

from api.errors import ApiError, bad_request
from api.http.app_state import ApiState
from api.http.formats import Format
from api.http.tree_parameters import TreeShape
from api.http.view_parameters import View
from api.queries.selection.selection import unit_of
from api.queries.selection.time_range import TimeRange
from api.queries.stacks.stack_values import StackValues
from api.render import collapsed, firefox, pgo, pprof, rows, speedscope
from api.render.pprof_of_functions import pprof_of_functions
from api.render.tree import tree
from api.statistics.evidence import Evidence
from api.tree.distinct import distinct_ids
from api.tree.graph import build_graph
from api.tree.picture import make_picture
from api.tree.stack_cache import FunctionStacks
from api.views.drawn import Arrangement, Drawn, draw
from api.views.labels_first import LabelValues

_WITH_COUNTS = (Format.ARROW, Format.JSONL, Format.PPROF)


@dataclass(frozen=True)
class ProfileHead:
    """What a profile is of."""

    profile_type: str
    time_range: TimeRange | None
    json: dict[str, Any]  # what a tree says about the query
    labels: dict[str, str] = field(default_factory=dict)  # of all samples in pprof


def check_format(output_format: Format | None, view: View, shape: TreeShape, is_grouped: bool = False) -> None:
    """Raises ApiError if a format does not have such frames. For routes, before they ask for the stacks."""
    if output_format is Format.PGO and (view.changes_frames or shape.invert or is_grouped):
        raise bad_request(
            "bad_parameter",
            "format=pgo has all frames as they are: the compiler reads who calls whom, and from which line",
            "leave out hide, frames, by, invert and group_by",
        )


def graph_response(
    state: ApiState,
    values: StackValues,
    head: ProfileHead,
    output_format: Format,
    view: View,
    shape: TreeShape,
    labels: LabelValues | None = None,
) -> Response:
    """The stacks that `view` keeps, below values of `labels`, in a format that `check_format` has passed. Raises
    ApiError."""
    keep = view.keeps(state, values.stack_ids)
    if keep is not None:
        values = values.where(keep)
        labels = labels and labels.where(keep)
    sides = values.values[np.newaxis]
    view = view.decided(state, values.stack_ids, sides)
    changed = view.changes_frames or shape.invert or labels is not None
    if output_format is Format.PGO or (output_format is Format.PPROF and not changed):
        return _address_response(state, values, head, output_format)
    stacks = view.stacks(state, values.stack_ids)
    arrangement = Arrangement(shape.invert, labels)
    if output_format is Format.TREE:
        sums = {"total": values.total, "samples": values.samples, "stacks": len(distinct_ids(values.stack_ids))}
        drawn = draw(stacks, sides, arrangement, shape.root)
        about = head.json | sums | {"frames": view.frames.value}
        return json_response(about | tree_answer(drawn, shape, (1.0,)))
    return _export_response(arrangement.shown(stacks), values, head, output_format)


def _export_response(
    shown: FunctionStacks, values: StackValues, head: ProfileHead, output_format: Format
) -> StreamingResponse:
    """The formats that have whole stacks of functions."""
    sides = np.stack([values.values, values.counts]) if output_format in _WITH_COUNTS else values.values[np.newaxis]
    graph, functions = build_graph(shown.tree, shown.leaves, sides), shown.functions
    about = (graph, functions, head.profile_type, unit_of(head.profile_type))
    match output_format:
        case Format.COLLAPSED:
            return StreamingResponse(collapsed.collapsed(graph, functions), media_type=collapsed.MEDIA_TYPE)
        case Format.PPROF:
            parts = pprof_of_functions(graph, functions, head.profile_type, head.time_range, head.labels)
            return _file(parts, pprof.MEDIA_TYPE, pprof.FILE_NAME)
        case Format.ARROW:
            return _file(rows.arrow(graph, functions), rows.ARROW_MEDIA_TYPE, rows.ARROW_FILE_NAME)
        case Format.JSONL:
            return _file(rows.jsonl(graph, functions), rows.JSONL_MEDIA_TYPE, rows.JSONL_FILE_NAME)
        case Format.FIREFOX:
            return _file(firefox.firefox(*about, head.time_range), firefox.MEDIA_TYPE, firefox.FILE_NAME)
        case _:
            return _file(speedscope.speedscope(*about), speedscope.MEDIA_TYPE, speedscope.FILE_NAME)


def tree_answer(
    drawn: Drawn, shape: TreeShape, scales: Sequence[float], evidence: Evidence | None = None
) -> dict[str, Any]:
    """The members that describe a tree; `scales` has a factor for the values of each side."""
    picture = make_picture(drawn.graph, shape.max_nodes, shape.width, drawn.root, scales)
    return tree(picture, drawn.table, drawn.stacks.functions, max_functions=shape.max_nodes, evidence=evidence)


def json_response(body: Any) -> Response:
    """Compact JSON; arrays of numpy become lists, and what is no number becomes null."""
    try:
        content = orjson.dumps(body, default=np.ndarray.tolist, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:  # a sum of absurd values that 64 bits do not hold
        content = json.dumps(body, default=np.ndarray.tolist).encode()
    return Response(content, media_type="application/json")


def _address_response(
    state: ApiState, values: StackValues, head: ProfileHead, output_format: Format
) -> StreamingResponse:
    """The formats that are made from addresses. Raises ApiError."""
    stacks = state.stacks.addresses_of(values.stack_ids)
    about = (values, stacks, head.profile_type, head.time_range, head.labels)
    if output_format is Format.PPROF:
        return _file(pprof.pprof(*about), pprof.MEDIA_TYPE, pprof.FILE_NAME)
    profile = pgo.pgo(pprof.pieces(*about))
    if profile is None:
        hint = (
            "select a service that is written in Go; its functions need names and lines (do not build with -ldflags=-w)"
        )
        raise ApiError(404, "not_found", "no samples in functions of Go", hint)
    return _file(pprof.gzipped([profile]), pprof.MEDIA_TYPE, pgo.FILE_NAME)


def _file(content: Iterable[str] | Iterable[bytes], media_type: str, name: str) -> StreamingResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(content, media_type=media_type, headers=headers)
