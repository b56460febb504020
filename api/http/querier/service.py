"""The calls by their names."""

from fastapi import APIRouter
from starlette.responses import Response

from api.http.connect import add_call, error_response, unimplemented
from api.http.querier import labels, profiles
from api.http.querier.series import select_series
from icestream.pyroscope import querier_pb2 as messages

router = APIRouter()
_QUERIER = "/querier.v1.QuerierService"
_OTHERS = ("settings.v1.SettingsService", "settings.v1.RecordingRulesService", "vcs.v1.VCSService",
           "adhocprofiles.v1.AdHocProfileService", "capabilities.v1.FeatureFlagsService")  # fmt: skip
"""Services of Pyroscope that Grafana and `profilecli` ask, too."""

add_call(router, f"{_QUERIER}/ProfileTypes", messages.ProfileTypesRequest, labels.profile_types)
add_call(router, f"{_QUERIER}/LabelNames", messages.LabelNamesRequest, labels.label_names)
add_call(router, f"{_QUERIER}/LabelValues", messages.LabelValuesRequest, labels.label_values)
add_call(router, f"{_QUERIER}/Series", messages.SeriesRequest, labels.series)
add_call(router, f"{_QUERIER}/SelectSeries", messages.SelectSeriesRequest, select_series)
add_call(
    router,
    f"{_QUERIER}/SelectMergeStacktraces",
    messages.SelectMergeStacktracesRequest,
    profiles.select_merge_stacktraces,
)
add_call(
    router,
    f"{_QUERIER}/SelectMergeSpanProfile",
    messages.SelectMergeSpanProfileRequest,
    profiles.select_merge_span_profile,
)
add_call(router, f"{_QUERIER}/SelectMergeProfile", messages.SelectMergeProfileRequest, profiles.select_merge_profile)
add_call(router, f"{_QUERIER}/Diff", messages.DiffRequest, profiles.diff)
add_call(router, f"{_QUERIER}/GetProfileStats", messages.GetProfileStatsRequest, labels.profile_stats)
add_call(router, f"{_QUERIER}/AnalyzeQuery", messages.AnalyzeQueryRequest, labels.analyze_query)
add_call(router, "/settings.v1.SettingsService/Get", messages.GetSettingsRequest, labels.settings)


async def unknown_method(method: str) -> Response:
    """A call that icestream does not have. Profiles Drilldown goes on without it if the status is 501."""
    return error_response(unimplemented(f"{method[:60]}: icestream does not have this call"))


for service in (_QUERIER, *(f"/{name}" for name in _OTHERS)):
    router.add_api_route(f"{service}/{{method}}", unknown_method, methods=["POST"], include_in_schema=False)
