"""Calls that answer with a profile: merged, of spans, as pprof, and compared."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from api.http.app_state import ApiState
from api.http.connect import invalid, unimplemented
from api.http.parameters import parse_trace_id
from api.http.querier.requests import parse_frame_filter, parse_range, parse_selection
from api.http.routes.diff import side_by_side
from api.http.tree_parameters import DEFAULT_MAX_NODES
from api.queries.selection.selection import Selection
from api.queries.stacks.stack_values import StackValues, read_selected_stacks, read_stack_values
from api.render import pprof
from api.render.flamebearer import flame_graph, flame_graph_diff
from api.render.pgo import pgo
from api.render.pyroscope_tree import tree
from api.tree.graph import build_graph
from api.tree.picture import make_picture
from api.views.call_site import begins_with
from api.views.frame_filter import FrameFilter, passes
from api.views.used_part import used_part
from icestream.pprof.profile_pb2 import Profile
from icestream.pyroscope.querier_pb2 import (
    PROFILE_FORMAT_FLAMEGRAPH,
    PROFILE_FORMAT_PPROF,
    PROFILE_FORMAT_TREE,
    PROFILE_FORMAT_UNSPECIFIED,
    DiffRequest,
    DiffResponse,
    PprofProfile,
    ProfileFormat,
    SelectMergeProfileRequest,
    SelectMergeSpanProfileRequest,
    SelectMergeSpanProfileResponse,
    SelectMergeStacktracesRequest,
    SelectMergeStacktracesResponse,
    StackTraceSelector,
)

_FLAME_GRAPH = (PROFILE_FORMAT_UNSPECIFIED, PROFILE_FORMAT_FLAMEGRAPH)
_MAX_IDS = 1_000


@dataclass(frozen=True)
class _Merged:
    """What a request selects, and its samples by stack."""

    selection: Selection
    values: StackValues


def select_merge_stacktraces(state: ApiState, request: SelectMergeStacktracesRequest) -> SelectMergeStacktracesResponse:
    """A flame graph, a tree or pprof. The first two are absent where there are no samples."""
    if request.format not in (*_FLAME_GRAPH, PROFILE_FORMAT_TREE, PROFILE_FORMAT_PPROF):
        raise unimplemented("format: only flame graphs, trees and pprof")
    if request.stack_trace_selector.HasField("go_pgo") and request.format != PROFILE_FORMAT_PPROF:
        raise unimplemented("go_pgo: only as pprof")
    merged = _merge(state, request)
    if request.format == PROFILE_FORMAT_PPROF:
        profile = _profile(state, merged, request.stack_trace_selector)
        return SelectMergeStacktracesResponse(pprof=PprofProfile(profile=profile))
    if merged is None or not len(merged.values.stack_ids):
        return SelectMergeStacktracesResponse()
    stacks = state.stacks.functions_of(merged.values.stack_ids)
    graph = build_graph(stacks.tree, stacks.leaves, merged.values.values[np.newaxis])
    shown = make_picture(graph, _max_nodes(state, request.max_nodes), None, 0, (1.0,)).graph
    if request.format == PROFILE_FORMAT_TREE:
        return SelectMergeStacktracesResponse(tree=tree(shown, stacks.functions))
    return SelectMergeStacktracesResponse(flamegraph=flame_graph(shown, stacks.functions))


def select_merge_span_profile(
    state: ApiState, request: SelectMergeSpanProfileRequest
) -> SelectMergeSpanProfileResponse:
    """What older versions of Grafana call for spans."""
    if request.format not in (*_FLAME_GRAPH, PROFILE_FORMAT_TREE):
        raise unimplemented("format: only flame graphs and trees")
    if not request.span_selector:
        raise invalid("span_selector: give span IDs")
    of_spans = SelectMergeStacktracesRequest(
        profile_typeID=request.profile_typeID,
        label_selector=request.label_selector,
        start=request.start,
        end=request.end,
        max_nodes=request.max_nodes,
        span_selector=request.span_selector,
        format=request.format,
    )
    merged = select_merge_stacktraces(state, of_spans)
    if request.format == PROFILE_FORMAT_TREE:
        return SelectMergeSpanProfileResponse(tree=merged.tree)
    return SelectMergeSpanProfileResponse(flamegraph=merged.flamegraph if merged.HasField("flamegraph") else None)


def select_merge_profile(state: ApiState, request: SelectMergeProfileRequest) -> Profile:
    """pprof with all stacks, whatever max_nodes is."""
    of_all = SelectMergeStacktracesRequest(
        profile_typeID=request.profile_typeID,
        label_selector=request.label_selector,
        start=request.start,
        end=request.end,
        stack_trace_selector=request.stack_trace_selector,
        profile_id_selector=request.profile_id_selector,
        trace_id_selector=request.trace_id_selector,
    )
    return _profile(state, _merge(state, of_all), request.stack_trace_selector)


def diff(state: ApiState, request: DiffRequest) -> DiffResponse:
    """Both sides as they were measured, with selections of their own. Ignores the formats that Pyroscope ignores."""
    for side in (request.left, request.right):
        if side.format not in ProfileFormat.values():
            raise unimplemented(f"format: {side.format} is not known")
        if side.stack_trace_selector.HasField("go_pgo"):
            raise unimplemented("stack_trace_selector.go_pgo: not in a diff")
    both = [_merge(state, side) for side in (request.left, request.right)]
    sides = [each.values if each else _NOTHING for each in both]
    stack_ids, values = side_by_side(*sides)
    stacks = state.stacks.functions_of(stack_ids)
    graph = build_graph(stacks.tree, stacks.leaves, values)
    max_nodes = _max_nodes(state, max(request.left.max_nodes, request.right.max_nodes))
    picture = make_picture(graph, max_nodes, None, 0, (1.0, 1.0))
    return DiffResponse(flamegraph=flame_graph_diff(picture.graph, stacks.functions))


_NOTHING = StackValues(np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64))


def _merge(state: ApiState, request: SelectMergeStacktracesRequest) -> _Merged | None:
    """None if the selector excludes the profile type. Raises ApiError, ConnectError."""
    if request.profile_id_selector:
        raise unimplemented("profile_id_selector: samples have no profile IDs")
    if getattr(request, "async").type:
        raise unimplemented("async: every query is answered at once")
    time_range = parse_range(request.start, request.end)
    selection = parse_selection(request.profile_typeID, request.label_selector, time_range)
    spans, traces = _span_ids(request.span_selector), _trace_ids(request.trace_id_selector)
    wanted = parse_frame_filter(request.stack_trace_selector)
    if selection is None:
        return None
    limit = state.settings.api_max_stacks
    if not spans and not traces:
        values = read_selected_stacks(state.database, selection, limit)
    else:
        conditions = selection.conditions()
        if spans:
            conditions.add(f"span_id IN {conditions.bind_span_ids(spans)}")
        if traces:
            conditions.add(f"trace_id IN {conditions.bind_trace_ids(traces)}")
        # A span may have come without its trace.
        values = read_stack_values(state.database, "trace_samples" if traces else "samples", conditions, limit)
    return _Merged(selection, _of_selector(state, values, request.stack_trace_selector, wanted))


def _of_selector(
    state: ApiState, values: StackValues, selector: StackTraceSelector, wanted: FrameFilter | None
) -> StackValues:
    """The stacks that begin with the call site, and have the functions that are asked for, if any are given."""
    call_site = () if selector.HasField("go_pgo") else [each.name for each in selector.call_site]
    if not call_site and not wanted:
        return values
    stacks = used_part(state.stacks.functions_of(values.stack_ids))
    chosen = begins_with(stacks, call_site)
    return values.where(chosen & passes(stacks, wanted) if wanted else chosen)


def _profile(state: ApiState, merged: _Merged | None, selector: StackTraceSelector) -> Profile:
    """pprof with one value for each sample, as Pyroscope's clients expect it."""
    profile = Profile()
    if merged is None:
        return profile
    stacks = state.stacks.addresses_of(merged.values.stack_ids)
    selection, values = merged.selection, merged.values
    pieces = pprof.pieces(values, stacks, selection.profile_type, selection.time_range, {}, with_counts=False)
    if selector.HasField("go_pgo"):
        return pgo(pieces, selector.go_pgo.keep_locations, selector.go_pgo.aggregate_callees) or profile
    for piece in pieces:
        profile.MergeFrom(piece)
    return profile


def _max_nodes(state: ApiState, requested: int) -> int:
    """How many nodes to keep: the default if none are asked for, and never more than one answer may have."""
    return min(requested if requested > 0 else DEFAULT_MAX_NODES, state.settings.api_max_nodes)


def _span_ids(texts: Sequence[str]) -> list[str]:
    """Raises ConnectError."""
    spans = [text.strip().lower() for text in texts]
    if len(spans) > _MAX_IDS:
        raise invalid(f"span_selector: more than {_MAX_IDS} span IDs")
    for span in spans:
        if len(span) != 16 or set(span) - set("0123456789abcdef"):
            raise invalid(f"span_selector: not a span ID of 16 hex digits: {span[:60]!r}")
    return spans


def _trace_ids(texts: Sequence[str]) -> list[str]:
    """Raises ApiError, ConnectError."""
    if len(texts) > _MAX_IDS:
        raise invalid(f"trace_id_selector: more than {_MAX_IDS} trace IDs")
    return [parse_trace_id(text) for text in texts]
