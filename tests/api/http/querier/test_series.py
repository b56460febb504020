import pytest
from clickhouse_connect.driver.client import Client

from icestream.pyroscope import querier_pb2 as messages
from tests.api.conftest import Api
from tests.api.fill import START_S, Sample, fill, frame
from tests.api.http.querier.calls import CPU, END_MS, START_MS, call, post

MAIN = frame("main")

CALL_SITE = messages.StackTraceSelector(call_site=[messages.CallSite(name="main")])
FRAME_FILTER = messages.StackTraceSelector(frame_filter=messages.StackFrameFilter(include_function_names=["main"]))


def select(api: Api, **fields: object) -> list[tuple[dict[str, str], list[tuple[int, float]]]]:
    asked = messages.SelectSeriesRequest(
        **{"profile_typeID": CPU, "label_selector": "{}", "start": START_MS, "end": END_MS, "step": 15.0} | fields
    )
    answer = call(api, "SelectSeries", asked, messages.SelectSeriesResponse)
    return [
        ({pair.name: pair.value for pair in each.labels}, [(p.timestamp, p.value) for p in each.points])
        for each in answer.series
    ]


@pytest.fixture
def filled(client: Client) -> None:
    at = [("checkout", 1), ("checkout", 2), ("cart", 31), ("checkout", 3599), ("", 40)]
    fill(client, [Sample((MAIN,), labels={"service": s} if s else {"x": "y"}, time_s=START_S + t) for s, t in at])


@pytest.mark.usefixtures("filled")
def test_values_are_sums_of_a_step_at_the_time_where_it_ends(api: Api) -> None:
    sums = [(START_MS + 15_000, 20e6), (START_MS + 45_000, 20e6), (END_MS, 10e6)]
    assert select(api) == [({}, sums)]
    assert select(api, label_selector='{service_name="cart"}') == [({}, [(START_MS + 45_000, 10e6)])]
    assert select(api, label_selector='{service_name="nobody"}') == []
    assert select(api, label_selector='{__profile_type__="other"}') == []


@pytest.mark.usefixtures("filled")
def test_groups_come_heaviest_first_and_have_the_labels_that_they_have(api: Api) -> None:
    groups = select(api, group_by=["service_name", "__type__"])
    assert groups[0][0] == {"service_name": "checkout", "__type__": "cpu"}
    assert {"__type__": "cpu"} in [labels for labels, _ in groups]
    assert len(groups) == 3
    assert len(select(api, group_by=["service_name"], limit=1)) == 1


@pytest.mark.usefixtures("filled")
def test_what_asks_for_nothing_changes_nothing(api: Api) -> None:
    nothing = {"exemplar_type": messages.EXEMPLAR_TYPE_NONE, "stack_trace_selector": messages.StackTraceSelector()}
    assert select(api, **nothing) == select(api)


@pytest.mark.usefixtures("filled")
def test_profiles_are_no_exemplars_but_do_not_take_the_series_away(api: Api) -> None:
    """Profiles Drilldown asks for them with its main series, where Grafana's toggle `profilesExemplars` is on."""
    assert select(api, exemplar_type=messages.EXEMPLAR_TYPE_INDIVIDUAL) == select(api)


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"step": 0}, 400, "invalid_argument"),
        ({"step": float("nan")}, 400, "invalid_argument"),
        ({"step": 0.001}, 429, "resource_exhausted"),
        ({"start": END_MS, "end": START_MS}, 400, "invalid_argument"),
        ({"start": -5}, 400, "invalid_argument"),
        ({"end": 2**62}, 400, "invalid_argument"),
        ({"profile_typeID": "cpu"}, 400, "invalid_argument"),
        ({"label_selector": '{a=~"("}'}, 400, "invalid_argument"),
        ({"label_selector": '{__name__=~"("}'}, 400, "invalid_argument"),
        ({"label_selector": r'{__name__=~"\\Qcpu"}'}, 400, "invalid_argument"),
        ({"label_selector": "service"}, 400, "invalid_argument"),
        ({"label_selector": '{trace_id="1"}'}, 400, "invalid_argument"),
        ({"group_by": ["trace_id"]}, 400, "invalid_argument"),
        ({"group_by": list("abcdef")}, 400, "invalid_argument"),
        ({"aggregation": messages.TIME_SERIES_AGGREGATION_TYPE_AVERAGE}, 501, "unimplemented"),
        ({"stack_trace_selector": CALL_SITE}, 501, "unimplemented"),
        ({"stack_trace_selector": FRAME_FILTER}, 501, "unimplemented"),
        ({"exemplar_type": messages.EXEMPLAR_TYPE_SPAN}, 501, "unimplemented"),
        ({"exemplar_type": 9}, 501, "unimplemented"),
    ],
)
@pytest.mark.usefixtures("filled")
def test_what_cannot_be_answered_is_refused_with_a_code(
    api: Api, fields: dict[str, object], status: int, code: str
) -> None:
    asked = {"profile_typeID": CPU, "start": START_MS, "end": END_MS, "step": 15.0} | fields
    response = post(api, "SelectSeries", messages.SelectSeriesRequest(**asked).SerializeToString())
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert response.json()["message"]
