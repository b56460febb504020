"""Calls that say what there is: profile types, labels, series."""

import time
from collections.abc import Iterable, Iterator

from api.errors import too_large
from api.http.app_state import ApiState
from api.http.connect import invalid
from api.http.querier.requests import (
    PROFILE_TYPE_LABELS,
    Matchers,
    labels_of_profile_type,
    our_label,
    parse_matchers,
    parse_range_or_all,
    parse_selectors,
    their_label,
)
from api.queries.labels.known_series import SeenSeries
from api.queries.labels.labels import SelectedSeries, read_label_names, read_label_values
from api.queries.labels.profile_types import read_profile_types
from api.queries.labels.seen_series import read_seen_hours, read_seen_series
from api.queries.selection.sample_spans import REQUEST_LABELS
from api.queries.selection.time_range import TimeRange
from icestream.clickhouse.rollups import HOUR_S
from icestream.pyroscope.querier_pb2 import (
    AnalyzeQueryRequest,
    AnalyzeQueryResponse,
    GetProfileStatsRequest,
    GetProfileStatsResponse,
    GetSettingsRequest,
    GetSettingsResponse,
    LabelNamesRequest,
    LabelNamesResponse,
    LabelValuesRequest,
    LabelValuesResponse,
    ProfileType,
    ProfileTypesRequest,
    ProfileTypesResponse,
    QueryImpact,
    QueryScope,
    SeriesRequest,
    SeriesResponse,
)
from icestream.pyroscope.types_pb2 import LabelPair, Labels

_MAX_NAMES = 10_000
_MAX_LABEL_NAMES = 100
_MAX_SERIES = 100_000


def profile_types(state: ApiState, request: ProfileTypesRequest) -> ProfileTypesResponse:
    """All profile types that ever had samples; times are ignored. Grafana asks this to see if the data source works."""
    parts = ("name", "sample_type", "sample_unit", "period_type", "period_unit")
    return ProfileTypesResponse(
        profile_types=[
            ProfileType(ID=each, **dict(zip(parts, each.split(":"), strict=False)))
            for each in read_profile_types(state.database)
        ]
    )


def label_names(state: ApiState, request: LabelNamesRequest) -> LabelNamesResponse:
    """Names of labels, and of those that stand for the profile type."""
    time_range = parse_range_or_all(request.start, request.end)
    names: set[str] = set()
    for matchers in parse_selectors(request.matchers):
        of_series = SelectedSeries(matchers.of_labels, time_range)
        if matchers.of_profile_type:
            names.update(*(each.labels for each in _seen(state, matchers, time_range, None)))
            names.update(set(REQUEST_LABELS) & set(read_label_names(state.series, of_series, _MAX_NAMES)))
        else:
            names.update(read_label_names(state.series, of_series, _MAX_NAMES))
    if names:
        names = {their_label(name) for name in names} | set(PROFILE_TYPE_LABELS)
    return LabelNamesResponse(names=sorted(names))


def label_values(state: ApiState, request: LabelValuesRequest) -> LabelValuesResponse:
    """Values of a label."""
    time_range = parse_range_or_all(request.start, request.end)
    name = our_label(request.name)
    values: set[str] = set()
    for matchers in parse_selectors(request.matchers):
        if name in PROFILE_TYPE_LABELS:
            seen = _seen(state, matchers, time_range, ())
            values.update(labels_of_profile_type(each.profile_type).get(name, "") for each in seen)
        elif matchers.of_profile_type and name not in REQUEST_LABELS:
            values.update(each.labels.get(name, "") for each in _seen(state, matchers, time_range, (name,)))
        else:
            of_series = SelectedSeries(matchers.of_labels, time_range)
            values.update(read_label_values(state.series, name, of_series, "", _MAX_NAMES))
    return LabelValuesResponse(names=sorted(values - {""}))


def series(state: ApiState, request: SeriesRequest) -> SeriesResponse:
    """Sets of labels, each once: with all labels, or with those that were asked for."""
    time_range = parse_range_or_all(request.start, request.end)
    if len(request.label_names) > _MAX_LABEL_NAMES:
        raise invalid(f"label_names: more than {_MAX_LABEL_NAMES}")
    names = tuple(map(our_label, request.label_names)) or None
    found: set[tuple[tuple[str, str], ...]] = set()
    for matchers in parse_selectors(request.matchers):
        for each in _seen(state, matchers, time_range, names):
            labels = {their_label(name): value for name, value in each.labels.items()}
            of_type = labels_of_profile_type(each.profile_type)
            labels |= {name: value for name, value in of_type.items() if names is None or name in names}
            found.add(tuple(sorted(labels.items())))
    return SeriesResponse(labels_set=[Labels(labels=label_pairs(each)) for each in sorted(found) if each])


def profile_stats(state: ApiState, request: GetProfileStatsRequest) -> GetProfileStatsResponse:
    """When there are samples, to the hour."""
    hours = read_seen_hours(state.database)
    if hours is None:
        return GetProfileStatsResponse()
    newest_s = min(hours[1] + HOUR_S, int(time.time()))
    return GetProfileStatsResponse(
        data_ingested=True, oldest_profile_time=hours[0] * 1000, newest_profile_time=newest_s * 1000
    )


def analyze_query(state: ApiState, request: AnalyzeQueryRequest) -> AnalyzeQueryResponse:
    """How many series a query is about. It does not say how much a query reads, which depends on rollups."""
    matchers = parse_matchers(request.query)
    count = len(list(_seen(state, matchers, parse_range_or_all(request.start, request.end), None)))
    scope = QueryScope(component_type="ClickHouse", component_count=1, series_count=count)
    return AnalyzeQueryResponse(query_scopes=[scope], query_impact=QueryImpact(total_queried_series=count))


def settings(state: ApiState, request: GetSettingsRequest) -> GetSettingsResponse:
    """None are kept: Profiles Drilldown uses its defaults."""
    return GetSettingsResponse()


def label_pairs(labels: Iterable[tuple[str, str]]) -> list[LabelPair]:
    return [LabelPair(name=name, value=value) for name, value in labels]


def _seen(
    state: ApiState, matchers: Matchers, time_range: TimeRange | None, names: tuple[str, ...] | None
) -> Iterator[SeenSeries]:
    """Raises ApiError."""
    types = matchers.profile_types(read_profile_types(state.database)) if matchers.of_profile_type else None
    if types == []:
        return
    found = read_seen_series(state.series, types, matchers.of_labels, time_range, names, _MAX_SERIES + 1)
    if len(found) > _MAX_SERIES:
        raise too_large(f"more than {_MAX_SERIES} series")
    yield from found
