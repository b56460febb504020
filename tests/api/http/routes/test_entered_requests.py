"""Requests in the order of their duration or start, by their size and status, and as a heat map."""

import pytest
from clickhouse_connect.driver.client import Client

from tests.api.conftest import RANGE, Api
from tests.api.fill import START_S, Sample, fill, frame
from tests.data.tables import insert_rows, to_datetime

COUNT = 8
SHOP = '{service="shop"}'


def trace(number: int) -> bytes:
    return bytes([number]) * 16


def duration_ms(number: int) -> int:
    return [900, 20, 21, 22, 400, 23, 24, 25][number]


@pytest.fixture
def requests(client: Client) -> None:
    """Request n starts n seconds after the first; the odd ones used CPU, the third and sixth failed."""
    spans, activity = [], []
    for n in range(COUNT):
        start = START_S + 10 + n
        of = {"trace_id": trace(n), "service": "shop", "host_id": "h", "operation": "GET /", "span_id": b"s" * 8}
        spans.append(
            of
            | {
                "parent_span_id": bytes(8), "name": "GET /", "start_time": to_datetime(start),
                "end_time": to_datetime(start + duration_ms(n) / 1000), "status": "error" if n in (2, 5) else "ok",
            }
        )  # fmt: skip
        if n % 2:
            activity.append(
                of | {"start_time": to_datetime(start), "duration_ns": 10**7, "thread_cpu_ns": n * 10**6}
                | {"entry_span_id": b"s" * 8}
            )  # fmt: skip
    insert_rows(client, "spans", spans)
    insert_rows(client, "activity", activity)
    fill(client, [Sample((frame("work"),), labels={"service": "shop"}, trace_id=trace(3), span_id=b"s" * 8)])


def listed(api: Api, **parameters: object) -> list[int]:
    """Numbers of requests."""
    return [bytes.fromhex(each["trace_id"])[0] for each in api.json("/api/v1/traces", **parameters)["traces"]]


def test_requests_are_ordered_by_duration_and_start_also_without_cpu(api: Api, requests: None) -> None:
    slowest = sorted(range(COUNT), key=duration_ms, reverse=True)
    assert listed(api, order="duration") == slowest
    assert listed(api, order="start") == list(reversed(range(COUNT)))
    assert listed(api, order="cpu") == [7, 5, 3, 1]  # as ever: those that used CPU
    pages, cursor = [], {}
    while len(pages) < 4:
        page = api.json("/api/v1/traces", order="duration", limit=3, **cursor)
        pages.append([bytes.fromhex(each["trace_id"])[0] for each in page["traces"]])
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert pages == [slowest[:3], slowest[3:6], slowest[6:]]
    row = api.json("/api/v1/traces", order="duration", limit=1)["traces"][0]
    assert (row["duration_ns"], row["cpu_ns"], row["operation"], row["status"]) == (900_000_000, 0, "GET /", "")


def test_requests_are_chosen_by_duration_cpu_and_status(api: Api, requests: None) -> None:
    assert set(listed(api, min_duration_ns=400_000_000)) == {0, 4}
    assert set(listed(api, below_duration_ns=22_000_000)) == {1, 2}
    assert listed(api, below_cpu_ns=6_000_000, min_cpu_ns=3_000_000, order="start") == [5, 3]
    assert set(listed(api, status="error")) == {2, 5}
    assert {row["status"] for row in api.json("/api/v1/traces", status="error")["traces"]} == {"error"}
    assert api.get("/api/v1/traces", status="fine").status_code == 400


@pytest.mark.parametrize("measure", ["duration", "cpu"])
def test_a_heat_map_counts_each_request_in_the_cell_that_a_list_of_its_bounds_has(
    api: Api, requests: None, measure: str
) -> None:
    assert api.get("/api/v1/requests/map", steps=0).status_code == 400
    found = api.json("/api/v1/requests/map", measure=measure, steps=900, selector=SHOP)
    assert (found["step_ms"], sum(found["requests"]), sum(found["errors"])) == (4000, COUNT, 2)
    for step, level, count in zip(found["step"], found["level"], found["requests"], strict=True):
        low, high = found["bounds_ns"][level : level + 2]
        start = START_S + step * 4
        if low > 1:
            bounds = {f"min_{measure}_ns": low, f"below_{measure}_ns": high, "order": "start"}
            assert len(listed(api, **bounds, selector=SHOP, start=start, end=start + 4)) == count
    assert not api.json("/api/v1/requests/map", selector='{service="none"}')["requests"]
    assert RANGE["start"] == str(START_S)
