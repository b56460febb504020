import pytest
from clickhouse_connect.driver.client import Client

from icestream.pyroscope import querier_pb2 as messages
from icestream.pyroscope.types_pb2 import Labels
from tests.api.conftest import Api
from tests.api.fill import START_S, Sample, fill, frame
from tests.api.http.querier.calls import CPU, END_MS, START_MS, call
from tests.api.queries.operations_data import Request, insert_requests

MAIN = frame("main")
WAITS = "off_cpu:wait:nanoseconds:wait:nanoseconds"
RANGE = {"start": START_MS, "end": END_MS}
OF_TYPE = ["__name__", "__period_type__", "__period_unit__", "__profile_type__", "__type__", "__unit__"]


@pytest.fixture
def filled(client: Client) -> None:
    fill(
        client,
        [
            Sample((MAIN,), labels={"service": "checkout", "version": "1.4"}),
            Sample((MAIN,), labels={"service": "checkout", "version": "1.5"}),
            Sample((MAIN,), labels={"service": "cart", "k8s.pod": "a-1"}, profile_type=WAITS),
            Sample((MAIN,), labels={"service": "old"}, time_s=START_S - 86_400),
        ],
    )


def names(api: Api, *matchers: str, **time_range: int) -> list[str]:
    asked = messages.LabelNamesRequest(matchers=matchers, **time_range)
    return list(call(api, "LabelNames", asked, messages.LabelNamesResponse).names)


def values(api: Api, name: str, *matchers: str, **time_range: int) -> list[str]:
    asked = messages.LabelValuesRequest(name=name, matchers=matchers, **time_range)
    return list(call(api, "LabelValues", asked, messages.LabelValuesResponse).names)


def series(api: Api, *matchers: str, label_names: tuple[str, ...] = ()) -> list[dict[str, str]]:
    asked = messages.SeriesRequest(matchers=matchers, label_names=label_names, **RANGE)
    answer = call(api, "Series", asked, messages.SeriesResponse)
    return [labels(each) for each in answer.labels_set]


def labels(each: Labels) -> dict[str, str]:
    return {pair.name: pair.value for pair in each.labels}


def test_operations_are_values_of_a_label_of_every_profile_type(api: Api, client: Client) -> None:
    insert_requests(client, [Request(1, "GET /a")])
    selector = f'{{__profile_type__="{CPU}", operation="GET /a"}}'
    assert values(api, "operation", selector, **RANGE) == ["GET /a"]
    assert "operation" in names(api, selector, **RANGE)
    assert series(api, selector, label_names=("service_name",)) == [{"service_name": "shop"}]


@pytest.mark.usefixtures("filled")
def test_profile_types_are_listed_with_their_parts(api: Api) -> None:
    asked = messages.ProfileTypesRequest(start=1000, end=4000)  # as Grafana's health check asks
    answer = call(api, "ProfileTypes", asked, messages.ProfileTypesResponse)
    assert [each.ID for each in answer.profile_types] == [WAITS, CPU]
    cpu = answer.profile_types[1]
    assert (cpu.name, cpu.sample_type, cpu.sample_unit) == ("process_cpu", "cpu", "nanoseconds")
    assert (cpu.period_type, cpu.period_unit) == ("cpu", "nanoseconds")


@pytest.mark.usefixtures("filled")
def test_names_of_labels_are_those_of_matching_series_and_the_service_has_pyroscopes_name(api: Api) -> None:
    assert names(api) == [*OF_TYPE, "k8s.pod", "service_name", "version"]
    assert names(api, f'{{__profile_type__="{CPU}"}}', **RANGE) == [*OF_TYPE, "service_name", "version"]
    assert names(api, f'{WAITS}{{service_name="cart"}}', **RANGE) == [*OF_TYPE, "k8s.pod", "service_name"]
    assert names(api, '{service="nobody"}', **RANGE) == []


@pytest.mark.usefixtures("filled")
def test_values_of_a_label_are_those_of_matching_series(api: Api) -> None:
    assert values(api, "service_name") == values(api, "service") == ["cart", "checkout", "old"]
    assert values(api, "service_name", "{}", **RANGE) == ["cart", "checkout"]
    assert values(api, "service_name", '{__name__=~"process.*"}', **RANGE) == ["checkout"]
    assert values(api, "service_name", '{__name__!~"process.*"}', **RANGE) == ["cart"]
    assert values(api, "__profile_type__", '{service_name="cart"}', **RANGE) == [WAITS]
    assert values(api, "version", '{version!="1.4"}', '{version="1.4"}', **RANGE) == ["1.4", "1.5"]
    assert values(api, "nothing") == []


@pytest.mark.usefixtures("filled")
def test_series_are_sets_of_labels(api: Api) -> None:
    assert series(api, label_names=("service_name", "__profile_type__")) == [
        {"__profile_type__": WAITS, "service_name": "cart"},
        {"__profile_type__": CPU, "service_name": "checkout"},
    ]
    (cart,) = series(api, '{service_name="cart"}')
    assert cart["k8s.pod"] == "a-1"
    assert cart["__unit__"] == "nanoseconds"
    assert series(api, label_names=("nothing",)) == []


@pytest.mark.usefixtures("filled")
def test_statistics_say_when_there_are_samples(api: Api) -> None:
    asked = messages.GetProfileStatsRequest()
    stats = call(api, "GetProfileStats", asked, messages.GetProfileStatsResponse)
    assert stats.data_ingested
    assert stats.oldest_profile_time <= START_MS - 86_400_000 + 1000 < stats.oldest_profile_time + 3_600_000
    assert stats.newest_profile_time >= START_MS
    asked = messages.AnalyzeQueryRequest(query=f'{CPU}{{service_name="checkout"}}', **RANGE)
    answer = call(api, "AnalyzeQuery", asked, messages.AnalyzeQueryResponse)
    assert answer.query_impact.total_queried_series == 2


def test_without_data_everything_is_empty(api: Api) -> None:
    asked = messages.GetProfileStatsRequest()
    assert not call(api, "GetProfileStats", asked, messages.GetProfileStatsResponse).data_ingested
    assert names(api) == values(api, "service_name") == series(api) == []
    settings = call(
        api, "/settings.v1.SettingsService/Get", messages.GetSettingsRequest(), messages.GetSettingsResponse
    )
    assert settings == messages.GetSettingsResponse()
