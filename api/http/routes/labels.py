"""Which labels a selector can have, and which values."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from starlette.responses import Response

from api.http.answer_model import Answer, described
from api.http.answers import json_response
from api.http.app_state import ApiState, app_state
from api.http.parameters import EndParam, SelectorParam, StartParam, parse_selector, parse_time_range
from api.queries.labels.labels import SelectedSeries, read_label_names, read_label_values

router = APIRouter(tags=["labels"])


class LabelNames(Answer):
    labels: list[str]
    more: bool


class LabelValuesAnswer(Answer):
    values: list[str]
    more: bool


LimitParam = Annotated[int, Query(ge=1, le=10_000, description="Most entries to list.")]


def selected_series(selector: SelectorParam = "{}", start: StartParam = None, end: EndParam = None) -> SelectedSeries:
    """For routes, as a dependency: without start and end, all series ever seen. Raises ApiError."""
    return SelectedSeries(parse_selector(selector), parse_time_range(start, end) if start or end else None)


@router.get(
    "/api/v1/labels",
    summary="List names of labels",
    responses=described(LabelNames, {"labels": ["host", "service"], "more": False}),
)
def labels(
    series: Annotated[SelectedSeries, Depends(selected_series)],
    state: Annotated[ApiState, Depends(app_state)],
    limit: LimitParam = 1000,
) -> Response:
    """Names of labels of the series that match the selector; with start or end, of those with samples in that time."""
    return _list_response("labels", read_label_names(state.series, series, limit + 1), limit)


@router.get(
    "/api/v1/labels/{name:path}/values",
    summary="List values of a label",
    responses=described(LabelValuesAnswer, {"values": ["cart", "checkout"], "more": False}),
)
def label_values(
    name: Annotated[str, Path(max_length=500, description="The label.", examples=["service"])],
    series: Annotated[SelectedSeries, Depends(selected_series)],
    state: Annotated[ApiState, Depends(app_state)],
    contains: Annotated[str, Query(max_length=200, description="Only values that contain this, in any case.")] = "",
    limit: LimitParam = 1000,
) -> Response:
    """Values of a label, selected as label names are; without the empty value."""
    values = read_label_values(state.series, name, series, contains, limit + 1)
    return _list_response("values", values, limit)


def _list_response(name: str, entries: list[str], limit: int) -> Response:
    return json_response({name: entries[:limit], "more": len(entries) > limit})
