"""What Profiles Drilldown asks for its comparison, with the parameters that it sends, and for what it exports."""

from collections import Counter
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from icestream.pyroscope import querier_pb2 as messages
from tests.api.conftest import Api
from tests.api.fill import START_S, Sample, fill, frame
from tests.api.http.querier.calls import CPU, END_MS, START_MS
from tests.api.http.querier.test_profiles import lines, stacktraces
from tests.api.http.routes.test_merge import collapsed

MAIN, HOT, COLD = frame("main"), frame("hot"), frame("cold")
LEFT = [Sample((MAIN, HOT), 30, labels={"service": "a"}), Sample((MAIN,), 2, labels={"service": "a"})]
RIGHT = [Sample((MAIN, COLD), 10, labels={"service": "b"}), Sample((MAIN, HOT), 4, labels={"service": "b"})]
BOTH = {
    "leftQuery": f'{CPU}{{service_name="a"}}', "leftFrom": START_MS, "leftUntil": END_MS,
    "rightQuery": f'{CPU}{{service_name="b"}}', "rightFrom": START_MS, "rightUntil": END_MS,
}  # fmt: skip
ONE = {"query": f'{CPU}{{service_name="b"}}', "from": START_MS, "until": END_MS, "format": "json", "max-nodes": 16384}


def collapsed_of(answer: dict[str, Any], side: int, width: int) -> Counter[str]:
    graph = answer["flamebearer"]
    levels = [messages.Level(values=level) for level in graph["levels"]]
    return lines(messages.FlameGraph(names=graph["names"], levels=levels), side, width)


def test_a_comparison_has_both_sides_over_one_tree(api: Api, client: Client) -> None:
    fill(client, LEFT + RIGHT)
    response = api.http.get("/pyroscope/render-diff", params={**BOTH, "max-nodes": 16384})
    assert response.status_code == 200, response.text
    answer = response.json()
    assert collapsed_of(answer, 0, 7) == collapsed(LEFT)
    assert collapsed_of(answer, 1, 7) == collapsed(RIGHT)
    assert (answer["version"], answer["leftTicks"], answer["rightTicks"]) == (1, 32, 14)
    assert (answer["flamebearer"]["numTicks"], answer["flamebearer"]["maxSelf"]) == (46, 30)
    assert answer["metadata"] == {
        "format": "double", "spyName": "", "name": "cpu", "units": "samples", "sampleRate": 1_000_000_000,
    }  # fmt: skip


def test_a_comparison_of_nothing_is_empty(api: Api) -> None:
    answer = api.http.get("/pyroscope/render-diff", params=BOTH).json()
    assert (answer["leftTicks"], answer["rightTicks"], answer["flamebearer"]["numTicks"]) == (0, 0, 0)


def test_an_export_has_the_flame_graph_and_a_timeline(api: Api, client: Client) -> None:
    fill(client, [*LEFT, *RIGHT, Sample((MAIN,), 100, labels={"service": "b"}, time_s=START_S + 3599)])
    answer = api.http.get("/pyroscope/render", params=ONE).json()
    graph = stacktraces(api, label_selector='{service="b"}')
    assert answer["flamebearer"]["names"] == list(graph.names)
    assert answer["flamebearer"]["levels"] == [list(level.values) for level in graph.levels]
    assert (answer["flamebearer"]["numTicks"], answer["metadata"]["format"]) == (114, "single")
    timeline = answer["timeline"]
    assert (timeline["startTime"], timeline["durationDelta"]) == (START_S, 15)
    assert (timeline["samples"][0], timeline["samples"][-1], len(timeline["samples"])) == (14, 100, 240)
    assert sum(timeline["samples"]) == 114


@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
def test_times_may_have_any_unit(api: Api, client: Client, unit: int) -> None:
    fill(client, RIGHT)
    answer = api.http.get("/pyroscope/render", params={**ONE, "from": START_S * unit, "until": END_MS // 1000 * unit})
    assert answer.json()["flamebearer"]["numTicks"] == 14
    assert api.http.get("/pyroscope/render", params={**ONE, "from": "now-1h", "until": "now"}).status_code == 200


def test_objects_have_the_units_that_pyroscope_gives_them(api: Api) -> None:
    objects = "memory:alloc_objects:count:space:bytes{}"
    answer = api.http.get("/pyroscope/render", params={**ONE, "query": objects}).json()
    assert (answer["metadata"]["units"], answer["metadata"]["sampleRate"]) == ("objects", 100)
    assert answer["flamebearer"] == {"names": [], "levels": [], "numTicks": 0, "maxSelf": 0}


@pytest.mark.parametrize(
    ("path", "parameters", "status", "named"),
    [
        ("render-diff", BOTH | {"rightQuery": "memory:space:bytes:space:bytes{}"}, 400, "profile types"),
        ("render-diff", BOTH | {"leftQuery": '{service_name="a"}'}, 400, "leftQuery"),
        ("render-diff", {}, 400, "leftQuery"),
        ("render-diff", BOTH | {"rightFrom": "yesterday"}, 400, "rightFrom"),
        ("render-diff", BOTH | {"leftFrom": END_MS}, 400, "start"),
        ("render-diff", BOTH | {"frameFilter": "a"}, 501, "frameFilter"),
        ("render", ONE | {"format": "dot"}, 501, "format"),
        ("render", ONE | {"groupBy": "pod"}, 501, "groupBy"),
        ("render", ONE | {"max-nodes": "many"}, 400, "max-nodes"),
        ("render", ONE | {"query": "cpu{}"}, 400, "profile type"),
        ("render", ONE | {"query": f'{CPU}{{a=~"("}}'}, 400, "("),
    ],
)
def test_what_cannot_be_answered_is_refused(
    api: Api, path: str, parameters: dict[str, object], status: int, named: str
) -> None:
    response = api.http.get(f"/pyroscope/{path}", params=parameters)
    assert response.status_code == status, response.text
    assert response.json()["code"] == {400: "invalid_argument", 501: "unimplemented"}[status]
    assert named in response.json()["message"]
