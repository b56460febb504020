"""Samples are selected and grouped by the name and the ID of their span, and none is lost or counted twice."""

import pytest
from clickhouse_connect.driver.client import Client

from tests.api.conftest import Api
from tests.api.fill import START_S, Sample
from tests.api.queries.operations_data import MAIN, SAMPLE_NS, Request, insert_requests
from tests.data.tables import insert_rows, to_datetime

CHECKOUT, CART = "GET /checkout", 'GET /"cart"'
FIRST, INNER = f"{2:016x}", f"{3:016x}"


@pytest.fixture
def shop(client: Client) -> None:
    """Samples: 2 of the spans CHECKOUT, 3 of spans `inner`, 2 of a span that has not ended, 7 of none."""
    insert_requests(
        client,
        [
            Request(1, CHECKOUT, samples=2, inner_samples=1, labels={"version": "1"}),
            Request(2, CHECKOUT, samples=2, ended=False, labels={"version": "2"}),
            Request(3, CART, samples=0, inner_samples=2),
        ],
        [Sample((MAIN,), SAMPLE_NS, labels={"service": "shop"}, time_s=START_S + 61)] * 7,
    )


@pytest.mark.usefixtures("shop")
def test_a_span_selects_like_a_label(api: Api) -> None:
    expected = {
        'span_name="inner"': 3, 'span_name="GET /checkout"': 2, 'span_name="GET /\\"cart\\""': 0,
        'span_name=""': 9, 'span_name!=""': 5, 'span_name!="inner"': 11, 'span_name=~"GET.*"': 2,
        'span_name!~"GET.*"': 12, 'span_name=~"|inner"': 12, 'span_name!="", span_name!="inner"': 2,
        'span_name="inner", operation="GET /checkout"': 1, 'span_name="inner", version="2"': 0,
        f'span_id="{FIRST}"': 2, f'span_id="{INNER}"': 1, f'span_id!="{FIRST}"': 12, 'span_id=""': 7,
        'span_id!=""': 7, 'span_id=~"0{15}[23]"': 3, f'span_id="{FIRST}", span_name="inner"': 0,
        'span_id="ffffffffffffffff"': 0, "span_name=\"x') OR 1=1 --\"": 0,
    }  # fmt: skip
    found = {each: api.json("/api/v1/top", selector=f'{{service="shop", {each}}}')["samples"] for each in expected}
    assert found == expected


@pytest.mark.usefixtures("shop")
def test_each_question_selects_the_same_samples(api: Api) -> None:
    for matchers, samples in (('span_name="inner"', 3), (f'span_id!="{FIRST}"', 12)):
        selector = f'{{service="shop", {matchers}}}'
        assert api.json("/api/v1/merge", selector=selector)["samples"] == samples
        line = api.json("/api/v1/timeline", selector=selector, step="1h")
        assert sum(line["groups"][0]["samples"]) == samples
        compared = api.json("/api/v1/diff", selector=selector, baseline_selector='{service="shop"}')
        assert (compared["samples"], compared["baseline_samples"]) == (samples, 14)
        body = {"trace_ids": [f"{number:032x}" for number in (1, 2, 3)]}
        listed = api.http.post("/api/v1/merge", json=body, params={"selector": selector})
        assert listed.json()["samples"] == {3: 3, 12: 5}[samples]


@pytest.mark.usefixtures("shop")
def test_only_a_span_id_is_compared_with(api: Api) -> None:
    values = ["x", "0" * 16, "A" * 16, FIRST + "0", "2", "zz" * 8, "' OR ''='", "é" * 8, "\\x00" * 16, FIRST + "\\n"]
    for value in values:
        for path in ("merge", "top", "timeline", "traces", "labels", "completeness", "operations"):
            answer = api.get(f"/api/v1/{path}", selector=f'{{span_id!="{value}"}}')
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_selector"), (path, value)
        baseline = api.get("/api/v1/diff", baseline_selector=f'{{span_id="{value}"}}')
        assert (baseline.status_code, baseline.json()["error"]["code"]) == (400, "bad_selector")


@pytest.mark.usefixtures("shop")
def test_who_selects_or_groups_by_trace_id_is_told_how_traces_are_asked_for(api: Api) -> None:
    trace = f'{{trace_id="{1:032x}"}}'
    asked = {path: {"selector": trace} for path in ("merge", "top", "timeline", "traces", "labels", "completeness")}
    asked |= {"operations": {"selector": trace}, "diff": {"baseline_selector": trace}}
    refused = [api.get(f"/api/v1/{path}", **given).json()["error"] for path, given in asked.items()]
    assert {each["code"] for each in refused} == {"bad_selector"}
    assert all("/api/v1/traces/{trace_id}/cpu" in each["hint"] for each in refused)
    assert [each["message"].partition(":")[0] for each in refused] == [
        name for given in asked.values() for name in given
    ]
    for path, given in (("merge", {"group_by": "trace_id"}), ("timeline", {"sum_by": "service,trace_id"})):
        error = api.get(f"/api/v1/{path}", **given).json()["error"]
        assert (error["code"], "/api/v1/traces" in error["hint"]) == ("bad_parameter", True)


@pytest.mark.usefixtures("shop")
def test_a_wrong_regular_expression_is_refused(api: Api) -> None:
    for label in ("span_name", "span_id"):
        answer = api.get("/api/v1/merge", selector=f'{{{label}=~"a)|(b"}}')
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_selector")


@pytest.mark.usefixtures("shop")
def test_groups_by_span_name_sum_up_to_everything(api: Api) -> None:
    line = api.json("/api/v1/timeline", sum_by="span_name,operation", step="1h")
    found = {(g["labels"]["span_name"], g["labels"]["operation"]): sum(g["samples"]) for g in line["groups"]}
    assert found == {
        ("inner", CHECKOUT): 1, (CHECKOUT, CHECKOUT): 2, ("", CHECKOUT): 2, ("inner", CART): 2, ("", ""): 7,
    }  # fmt: skip
    merged = api.get("/api/v1/merge", group_by="span_name", format="collapsed").text
    assert sum(int(row.rsplit(" ", 1)[1]) for row in merged.splitlines()) == 14 * SAMPLE_NS
    assert f"inner;main;hot {3 * SAMPLE_NS}" in merged
    for answer in (api.get("/api/v1/merge", group_by="span_id"), api.get("/api/v1/timeline", sum_by="span_id")):
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_parameter")


@pytest.mark.usefixtures("shop")
def test_names_of_spans_are_listed_as_values_of_a_label(api: Api) -> None:
    assert api.json("/api/v1/labels")["labels"] == ["operation", "service", "span_name", "version"]
    assert api.json("/api/v1/labels/span_name/values")["values"] == [CART, CHECKOUT, "inner"]
    assert api.json("/api/v1/labels/span_name/values", contains="INN", selector='{service="shop"}')["values"] == [
        "inner"
    ]
    later = api.http.get("/api/v1/labels/span_name/values", params={"start": START_S + 7200, "end": START_S + 9000})
    assert later.json()["values"] == []


@pytest.mark.usefixtures("shop")
def test_a_span_that_is_reported_late_or_twice_counts_once(api: Api, client: Client) -> None:
    row = {
        "trace_id": Request(2, "").trace_id, "span_id": Request(2, "").entry_id, "host_id": "pod", "service": "shop",
        "name": "PUT /late", "start_time": to_datetime(START_S + 60), "end_time": to_datetime(START_S + 61),
    }  # fmt: skip
    insert_rows(client, "spans", [row])
    insert_rows(client, "spans", [row | {"end_time": to_datetime(START_S + 62), "name": "PUT /renamed"}])
    counts = {
        name: api.json("/api/v1/merge", selector=f'{{span_name="{name}"}}')["samples"]
        for name in ("PUT /late", "PUT /renamed", "")
    }
    assert counts == {"PUT /late": 0, "PUT /renamed": 2, "": 7}


@pytest.mark.usefixtures("shop")
def test_requests_that_have_a_span_are_listed_with_its_cpu(api: Api) -> None:
    traces = api.json("/api/v1/traces", selector='{span_name="inner"}')["traces"]
    assert {trace["trace_id"]: (trace["thread_cpu_ns"], trace["sampled_cpu_ns"]) for trace in traces} == {
        f"{1:032x}": (5_000_000, SAMPLE_NS), f"{3:032x}": (5_000_000, 2 * SAMPLE_NS),
    }  # fmt: skip
    (one,) = api.json("/api/v1/traces", selector=f'{{span_id="{FIRST}"}}')["traces"]
    assert (one["trace_id"], one["thread_cpu_ns"]) == (f"{1:032x}", 15_000_000)


def test_series_of_senders_may_have_a_label_of_this_name(api: Api, client: Client) -> None:
    sent = [Sample((MAIN,), SAMPLE_NS, labels={"service": "go", "span_name": "FindNearest"})] * 3
    insert_requests(client, [Request(1, CHECKOUT, samples=2)], sent)
    assert api.json("/api/v1/merge", selector='{span_name="FindNearest"}')["samples"] == 3
    assert api.json("/api/v1/merge", selector='{span_name!="FindNearest"}')["samples"] == 2
    line = api.json("/api/v1/timeline", sum_by="span_name", step="1h")
    assert {g["labels"]["span_name"]: sum(g["samples"]) for g in line["groups"]} == {"FindNearest": 3, CHECKOUT: 2}
    assert "FindNearest;main" in api.get("/api/v1/merge", group_by="span_name", format="collapsed").text
    assert api.json("/api/v1/labels/span_name/values")["values"] == ["FindNearest", CHECKOUT, "inner"]
