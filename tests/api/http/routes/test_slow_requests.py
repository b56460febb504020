"""Slow requests against fast ones of the same operation."""

import pytest
from clickhouse_connect.driver.client import Client

from api.terminal.draw_operations import draw_slow
from icestream.topics import OFF_CPU_PROFILE_TYPE
from tests.api.conftest import Api
from tests.api.fill import START_S, Frame, Sample, fill
from tests.api.queries.operations_data import COLD, HOT, MAIN, SAMPLE_NS, Request, insert_requests

PATH = "/api/v1/operations/slow"
SELECTOR = '{service="shop", operation="GET /a"}'
MS = 10**6
FUTEX = Frame(("futex_do_wait",), 0x1000, "[kernel]", kind=2)


@pytest.fixture
def requests(client: Client) -> None:
    """100 requests of 1 to 100 ms. The slow ones also spend time in `cold`; CPU goes the other way than duration."""
    made = [
        Request(i, "GET /a", cpu_ns=(101 - i) * MS, duration_ns=i * MS, samples=1, inner_samples=1, at_s=i)
        for i in range(1, 101)
    ]
    extra = [
        Request(i, "GET /a", cpu_ns=0, duration_ns=i * MS, samples=3, at_s=i, stack=(MAIN, COLD), ended=False)
        for i in range(95, 101)
    ]
    insert_requests(client, [*made, *extra, Request(200, "GET /b", duration_ns=10**9, samples=50)])


@pytest.mark.usefixtures("requests")
def test_what_the_slow_requests_do_beside_comes_first(api: Api) -> None:
    answer = api.json(PATH, selector=SELECTOR)
    assert answer["slow"] == {
        "requests": 5, "mean_duration_ns": 98_000_000, "mean_cpu_ns": 3_000_000, "bound_ns": 96 * MS,
        "mean_waits_ns": None,
    }  # fmt: skip
    assert (answer["fast"]["requests"], answer["fast"]["bound_ns"]) == (50, 50 * MS)
    assert (answer["samples"], answer["baseline_samples"]) == (5 * 5, 50 * 2)
    first = answer["differences"][0]
    assert (first["name"], first["flat_per_request"], first["baseline_flat_per_request"]) == ("cold", 3 * SAMPLE_NS, 0)
    assert {row["name"]: row["changed"] for row in answer["differences"]} == {"cold": True, "hot": False, "main": False}
    assert {row["name"]: row["flat_per_request"] for row in answer["differences"]}["hot"] == 2 * SAMPLE_NS
    names = [answer["strings"][row] for row in answer["functions"]["name"]]
    assert {MAIN.names[0], HOT.names[0], COLD.names[0]} <= set(names)
    assert answer["scale"] == pytest.approx(50 / 5)


@pytest.mark.usefixtures("requests")
def test_requests_are_slow_by_their_cpu_as_well(api: Api) -> None:
    answer = api.json(PATH, selector=SELECTOR, measure="cpu", slow=90, fast=10)
    assert answer["slow"]["bound_ns"] >= 90 * MS
    assert answer["slow"]["mean_duration_ns"] < answer["fast"]["mean_duration_ns"]
    assert answer["samples"] == 2 * answer["slow"]["requests"]


@pytest.mark.usefixtures("requests")
def test_a_view_keeps_stacks_of_both_sides(api: Api) -> None:
    answer = api.json(PATH, selector=SELECTOR, focus="cold")
    assert (answer["samples"], answer["baseline_samples"]) == (15, 0)


@pytest.mark.usefixtures("requests")
@pytest.mark.parametrize(
    ("parameters", "status", "code"),
    [
        ({"selector": '{service="shop"}'}, 400, "bad_selector"),
        ({"selector": SELECTOR, "slow": 10, "fast": 20}, 400, "bad_parameter"),
        ({"selector": SELECTOR, "slow": "nan"}, 400, "bad_parameter"),
        ({"selector": '{operation="GET /b"}'}, 404, "no_slow_requests"),
        ({"selector": '{operation="no"}'}, 404, "no_slow_requests"),
        ({"selector": '{operation="GET /a", version="1"}'}, 400, "bad_selector"),
    ],
)
def test_what_cannot_be_compared_is_said(api: Api, parameters: dict[str, object], status: int, code: str) -> None:
    answer = api.get(PATH, **parameters)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.usefixtures("requests")
@pytest.mark.parametrize(("ms", "explained"), [(1, False), (40, True)])
def test_off_cpu_time_that_explains_little_of_the_durations_is_no_change(
    api: Api, client: Client, ms: int, explained: bool
) -> None:
    waits = [Request(i, "GET /a", samples=0) for i in range(96, 101)]
    fill(
        client,
        [
            Sample(
                (MAIN, FUTEX), ms * MS, labels={"service": "shop"}, trace_id=each.trace_id, span_id=each.entry_id,
                time_s=START_S + 60,
                profile_type=OFF_CPU_PROFILE_TYPE,
            )
            for each in waits
        ],
    )  # fmt: skip
    answer = api.json(PATH, selector=SELECTOR, profile_type=OFF_CPU_PROFILE_TYPE)
    longer = answer["slow"]["mean_duration_ns"] - answer["fast"]["mean_duration_ns"]
    assert answer["explained"] == pytest.approx(ms * MS / longer, abs=0.001)
    assert (answer["slow"]["mean_waits_ns"], answer["fast"]["mean_waits_ns"]) == ({"lock": ms * MS}, {})
    changed = {row["changed"] for row in answer["differences"]}
    assert changed == ({None} if explained else {False})
    assert f"{answer['explained']:.0%} of what" in draw_slow(answer)
    assert f"3 ms CPU + {ms} ms lock on average" in draw_slow(answer)
    assert api.json(PATH, selector=SELECTOR)["explained"] is None
