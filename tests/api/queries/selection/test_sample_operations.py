"""Samples have the operation of their span: it selects and groups like a label, and loses nothing."""

import pytest
from clickhouse_connect.driver.client import Client

from tests.api.conftest import Api
from tests.api.fill import START_S, Sample
from tests.api.queries.operations_data import COLD, MAIN, SAMPLE_NS, Request, insert_requests
from tests.data.tables import insert_rows, to_datetime

CHECKOUT, CART = "GET /checkout", 'GET /"cart"'


@pytest.fixture
def shop(client: Client) -> None:
    """Samples: 5 of CHECKOUT, 2 of CART, 7 of none, and 1 of a service `pay` in the trace of the first request."""
    insert_requests(
        client,
        [
            Request(1, CHECKOUT, samples=2, inner_samples=1, labels={"version": "1"}),
            Request(2, CHECKOUT, samples=2, ended=False, labels={"version": "2"}),
            Request(3, CART, samples=0, inner_samples=2, stack=(MAIN, COLD)),
            Request(4, "charge", service="pay"),
        ],
        [Sample((MAIN,), SAMPLE_NS, labels={"service": "shop"}, time_s=START_S + 61)] * 7,
    )


def samples(api: Api, selector: str) -> int:
    return int(api.json("/api/v1/merge", selector=selector)["samples"])


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("matchers", "expected"),
    [
        ('operation="GET /checkout"', 5), ('operation="GET /\\"cart\\""', 2), ('operation=""', 7),
        ('operation!="GET /checkout"', 9), ('operation!=""', 7), ('operation=~"GET.*"', 7), ('operation!~"GET.*"', 7),
        ('operation=~"|GET /checkout"', 12), ('operation="GET /checkout", version="2"', 2), ('operation="no"', 0),
        ('operation!="", operation!="GET /checkout"', 2),
    ],
)  # fmt: skip
def test_an_operation_selects_like_a_label(api: Api, matchers: str, expected: int) -> None:
    assert samples(api, f'{{service="shop", {matchers}}}') == expected
    top = api.json("/api/v1/top", selector=f'{{service="shop", {matchers}}}')
    assert top["samples"] == expected
    line = api.json("/api/v1/timeline", selector=f'{{service="shop", {matchers}}}', step="1h")
    assert sum(line["groups"][0]["samples"]) == expected


@pytest.mark.usefixtures("shop")
def test_groups_by_operation_sum_up_to_everything(api: Api) -> None:
    line = api.json("/api/v1/timeline", sum_by="service,operation", step="1h")
    found = {tuple(group["labels"].values()): sum(group["samples"]) for group in line["groups"]}
    assert found == {("shop", CHECKOUT): 5, ("shop", CART): 2, ("shop", ""): 7, ("pay", "charge"): 1}
    merged = api.json("/api/v1/merge", group_by="operation")
    assert merged["total"] == 15 * SAMPLE_NS
    collapsed = api.get("/api/v1/merge", group_by="operation", format="collapsed").text
    assert f"{5 * SAMPLE_NS}" in next(row for row in collapsed.splitlines() if "GET /checkout" in row)


@pytest.mark.usefixtures("shop")
def test_two_operations_are_compared(api: Api) -> None:
    answer = api.json(
        "/api/v1/diff",
        selector='{service="shop", operation="GET /checkout"}',
        baseline_selector='{service="shop", operation=~".*cart.*"}',
    )
    assert (answer["samples"], answer["baseline_samples"]) == (5, 2)


@pytest.mark.usefixtures("shop")
def test_operations_are_listed_as_values_of_a_label(api: Api) -> None:
    assert api.json("/api/v1/labels")["labels"] == ["operation", "service", "span_name", "version"]
    assert api.json("/api/v1/labels/operation/values")["values"] == [CART, CHECKOUT, "charge"]
    values = api.json("/api/v1/labels/operation/values", selector='{service="shop"}', contains="CHECK")
    assert values["values"] == [CHECKOUT]
    later = api.http.get("/api/v1/labels/operation/values", params={"start": START_S + 7200, "end": START_S + 9000})
    assert later.json()["values"] == []


@pytest.mark.usefixtures("shop")
def test_an_operation_that_is_known_late_or_twice_counts_once(api: Api, client: Client) -> None:
    late = Request(9, "PUT /late", samples=0)
    sample = Sample((MAIN,), SAMPLE_NS, labels={"service": "shop"}, time_s=START_S + 60.01,
                    trace_id=late.trace_id, span_id=late.entry_id)  # fmt: skip
    insert_requests(client, [], [sample])
    assert (samples(api, '{operation="PUT /late"}'), samples(api, '{operation=""}')) == (0, 8)
    insert_requests(client, [late])
    insert_requests(client, [late])
    assert (samples(api, '{operation="PUT /late"}'), samples(api, '{operation=""}')) == (1, 7)


@pytest.mark.usefixtures("shop")
def test_the_last_operation_of_a_span_is_that_of_all_its_samples(api: Api, client: Client) -> None:
    first = Request(1, CHECKOUT)
    row = {
        "trace_id": first.trace_id, "span_id": first.entry_id, "host_id": "host-1", "service": "shop",
        "start_time": to_datetime(START_S + 61), "duration_ns": 1000, "thread_cpu_ns": 1000,
        "operation": "GET /renamed", "entry_span_id": first.entry_id,
    }  # fmt: skip
    insert_rows(client, "activity", [row])
    assert samples(api, '{operation="GET /renamed"}') == 2
    assert samples(api, f'{{operation="{CHECKOUT}"}}') == 3


def test_a_sample_at_the_end_of_a_long_interval_has_its_operation(api: Api, client: Client) -> None:
    long = Request(5, "POST /batch", at_s=-3000, samples=0)
    sample = Sample((MAIN,), SAMPLE_NS, labels={"service": "shop"}, time_s=START_S + 500,
                    trace_id=long.trace_id, span_id=long.entry_id)  # fmt: skip
    insert_requests(client, [long], [sample])
    assert samples(api, '{operation="POST /batch"}') == 1


def test_a_sample_has_its_operation_whatever_its_span_does_after_the_time_range(api: Api, client: Client) -> None:
    long = Request(6, "POST /batch", at_s=60)
    insert_requests(client, [long])
    insert_rows(
        client, "activity",
        [
            {
                "trace_id": long.trace_id, "span_id": long.entry_id, "host_id": "host-1", "service": "shop",
                "start_time": to_datetime(START_S + 1800), "duration_ns": 1000, "thread_cpu_ns": 1000,
                "operation": "POST /batch", "entry_span_id": long.entry_id,
            }
        ],
    )  # fmt: skip
    client.command("OPTIMIZE TABLE span_operations FINAL")
    found = api.http.get(
        "/api/v1/merge", params={"selector": '{operation="POST /batch"}', "start": START_S, "end": START_S + 900}
    )
    assert found.json()["samples"] == 1


@pytest.mark.usefixtures("shop")
def test_a_list_of_requests_of_all_times_is_selected_by_operation(api: Api) -> None:
    body = {"trace_ids": [f"{1:032x}", f"{3:032x}"]}
    found = api.http.post("/api/v1/merge", json=body, params={"selector": f'{{operation="{CHECKOUT}"}}'})
    assert found.json()["samples"] == 3


@pytest.mark.usefixtures("shop")
def test_a_wrong_regular_expression_is_refused(api: Api) -> None:
    answer = api.get("/api/v1/merge", selector='{operation=~"a)|(b"}')
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_selector")


@pytest.mark.usefixtures("shop")
def test_requests_of_an_operation_have_their_thread_cpu(api: Api) -> None:
    traces = api.json("/api/v1/traces", selector=f'{{service="shop", operation="{CHECKOUT}"}}')["traces"]
    assert {trace["trace_id"]: (trace["thread_cpu_ns"], trace["sampled_cpu_ns"]) for trace in traces} == {
        f"{1:032x}": (20_000_000, 3 * SAMPLE_NS), f"{2:032x}": (20_000_000, 2 * SAMPLE_NS),
    }  # fmt: skip
