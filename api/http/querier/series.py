"""SelectSeries: sums over time."""

import math

from api.errors import too_large
from api.http.app_state import ApiState
from api.http.connect import invalid, unimplemented
from api.http.querier.labels import label_pairs
from api.http.querier.requests import labels_of_profile_type, our_label, parse_range, parse_selection
from api.http.routes.timeline import MAX_LABELS, check_steps
from api.queries.stacks.timeline import Timeline, read_timeline
from icestream.pyroscope.querier_pb2 import (
    EXEMPLAR_TYPE_INDIVIDUAL,
    EXEMPLAR_TYPE_NONE,
    EXEMPLAR_TYPE_UNSPECIFIED,
    TIME_SERIES_AGGREGATION_TYPE_SUM,
    Point,
    SelectSeriesRequest,
    SelectSeriesResponse,
    Series,
)
from icestream.pyroscope.types_pb2 import LabelPair

_MAX_SERIES = 1_000
_EXEMPLARS = (EXEMPLAR_TYPE_UNSPECIFIED, EXEMPLAR_TYPE_NONE, EXEMPLAR_TYPE_INDIVIDUAL)


def select_series(state: ApiState, request: SelectSeriesRequest) -> SelectSeriesResponse:
    """Sums of each step and group of labels, heaviest groups first. A point has the time at which its step ends.

    A query for profiles as exemplars gets none, for samples are not stored as profiles. Grafana can be set up to ask
    for them with every series, and would show no series if they were refused.
    """
    time_range = parse_range(request.start, request.end)
    selection = parse_selection(request.profile_typeID, request.label_selector, time_range)
    if request.aggregation != TIME_SERIES_AGGREGATION_TYPE_SUM:
        raise unimplemented("aggregation: only sums")
    for field, _ in request.stack_trace_selector.ListFields():
        raise unimplemented(f"stack_trace_selector.{field.name}: only for profiles")
    if request.exemplar_type not in _EXEMPLARS:
        raise unimplemented("exemplar_type: spans are not given as exemplars")
    names = tuple(dict.fromkeys(request.group_by))
    if len(names) > MAX_LABELS:
        raise invalid(f"group_by: more than {MAX_LABELS} labels")
    if not (math.isfinite(request.step) and 0.001 <= request.step < 10**9):
        raise invalid(f"step: {request.step} is not a number of seconds")
    if selection is None:
        return SelectSeriesResponse()
    step_ms = round(request.step * 1000)
    check_steps(step_ms, time_range)
    timeline = read_timeline(state.database, selection, step_ms, tuple(map(our_label, names)))
    if request.limit <= 0 and len(timeline.labels) > _MAX_SERIES:
        raise too_large(f"more than {_MAX_SERIES} series", "group by fewer labels, or give a limit")
    limit = request.limit if request.limit > 0 else _MAX_SERIES
    of_type = labels_of_profile_type(selection.profile_type)
    rows = (_points(timeline, row, step_ms, request.end) for row in range(min(limit, len(timeline.labels))))
    return SelectSeriesResponse(
        series=[
            Series(labels=_labels(names, labels, of_type), points=points)
            for labels, points in zip(timeline.labels, rows, strict=False)
            if points
        ]
    )


def _labels(names: tuple[str, ...], values: tuple[str, ...], of_type: dict[str, str]) -> list[LabelPair]:
    """The labels that have a value."""
    labels = ((name, value or of_type.get(name, "")) for name, value in zip(names, values, strict=True))
    return label_pairs(sorted(label for label in labels if label[1]))


def _points(timeline: Timeline, row: int, step_ms: int, end_unix_milli: int) -> list[Point]:
    """The steps of one group that have samples."""
    columns = (timeline.times_unix_milli.tolist(), timeline.values[row].tolist(), timeline.counts[row].tolist())
    return [
        Point(value=value, timestamp=min(start + step_ms, end_unix_milli))
        for start, value, count in zip(*columns, strict=True)
        if value or count
    ]
