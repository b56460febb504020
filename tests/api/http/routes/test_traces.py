import pytest
from clickhouse_connect.driver.client import Client

from tests.api.conftest import Api
from tests.api.fill import START_S, Sample, fill, frame
from tests.data.tables import NO_SPAN, NO_TRACE, insert_rows, to_datetime

MAIN, HOT = frame("main"), frame("hot")
A, B = b"a" * 16, b"b" * 16
S1, S2 = b"1" * 8, b"2" * 8


def activity(
    client: Client, trace: bytes, span: bytes, sampled_cpu_ns: int, service: str = "checkout", after_s: int = 1
) -> None:
    row = {
        "trace_id": trace, "span_id": span, "host_id": "host-1", "service": service,
        "start_time": to_datetime(START_S + after_s), "duration_ns": sampled_cpu_ns, "thread_cpu_ns": sampled_cpu_ns,
    }  # fmt: skip
    insert_rows(client, "activity", [row])


def span(client: Client, trace: bytes, span_id: bytes, parent: bytes, name: str, service: str = "checkout") -> None:
    row = {
        "trace_id": trace, "span_id": span_id, "parent_span_id": parent, "name": name, "service": service,
        "host_id": "host-1", "start_time": to_datetime(START_S + 1), "end_time": to_datetime(START_S + 2),
    }  # fmt: skip
    insert_rows(client, "spans", [row])


@pytest.fixture
def two_requests(client: Client) -> None:
    fill(
        client,
        [Sample((MAIN, HOT), trace_id=A, span_id=S1)] * 3
        + [Sample((MAIN,), trace_id=A, span_id=S2)]
        + [Sample((MAIN,), trace_id=B)]
        + [Sample((MAIN,))] * 50,
    )
    span(client, A, S1, NO_SPAN, "POST /checkout")
    span(client, A, S2, S1, "charge", "payment")
    activity(client, A, S1, 31_000_000)
    activity(client, A, S2, 9_000_000, "payment")
    activity(client, B, NO_SPAN, 70_000_000)


@pytest.mark.usefixtures("two_requests")
def test_the_requests_that_used_most_cpu_come_first(api: Api) -> None:
    answer = api.json("/api/v1/traces")
    assert answer == {
        "traces": [
            {"trace_id": A.hex(), "operation": "POST /checkout", "service": "checkout",
             "sampled_cpu_ns": 40_000_000, "thread_cpu_ns": 40_000_000, "samples": 4},
            {"trace_id": B.hex(), "operation": "", "service": "checkout",
             "sampled_cpu_ns": 10_000_000, "thread_cpu_ns": 70_000_000, "samples": 1},
        ],
        "next": None,
    }  # fmt: skip
    assert [t["trace_id"] for t in api.json("/api/v1/traces", order="thread_cpu")["traces"]] == [B.hex(), A.hex()]
    assert [t["trace_id"] for t in api.json("/api/v1/traces", min_sampled_cpu_ns=20_000_000)["traces"]] == [A.hex()]
    assert [t["trace_id"] for t in api.json("/api/v1/traces", min_thread_cpu_ns=50_000_000)["traces"]] == [B.hex()]


@pytest.mark.usefixtures("two_requests")
def test_the_cpu_of_one_request_is_told_per_span_service_and_host(api: Api) -> None:
    answer = api.json(f"/api/v1/traces/{A.hex()}/cpu")
    assert (answer["trace_id"], answer["sampled_cpu_ns"], answer["thread_cpu_ns"], answer["samples"]) == (
        A.hex(),
        40_000_000,
        40_000_000,
        4,
    )
    assert [
        (s["span_id"], s["name"], s["service"], s["sampled_cpu_ns"], s["parent_span_id"]) for s in answer["spans"]
    ] == [
        (S1.hex(), "POST /checkout", "checkout", 30_000_000, ""),
        (S2.hex(), "charge", "payment", 10_000_000, S1.hex()),
    ]
    assert answer["hosts"] == [
        {"host_id": "host-1", "sampled_cpu_ns": 40_000_000, "thread_cpu_ns": 40_000_000, "samples": 4}
    ]
    collapsed = api.get(f"/api/v1/traces/{A.hex()}/cpu", format="collapsed").text
    assert sorted(collapsed.splitlines()) == ["main 10000000", "main;hot 30000000"]
    assert api.json(f"/api/v1/traces/{A.hex().upper()}/cpu", format="tree")["total"] == 40_000_000


def test_an_unknown_trace_is_404_with_a_hint(api: Api) -> None:
    answer = api.get(f"/api/v1/traces/{'0' * 31}1/cpu")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "unknown_trace"
    assert "/api/v1/traces" in answer.json()["error"]["hint"]


@pytest.mark.parametrize("trace_id", ["xyz", "0" * 32, "a" * 31, "a" * 33, "%27 OR 1", NO_TRACE.hex()])
def test_what_is_no_trace_id_is_400(api: Api, trace_id: str) -> None:
    answer = api.get(f"/api/v1/traces/{trace_id}/cpu")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_trace_id")


@pytest.mark.parametrize("order", ["sampled_cpu", "thread_cpu"])
def test_pages_hold_every_request_once_in_order(api: Api, client: Client, order: str) -> None:
    traces = [bytes([i]) * 16 for i in range(1, 24)]
    fill(client, [Sample((MAIN,), value=i % 5, trace_id=trace) for i, trace in enumerate(traces)])
    for i, trace in enumerate(traces):
        activity(client, trace, S1, i % 7)
    seen, cursor = [], ""
    while cursor is not None:
        page = api.json("/api/v1/traces", order=order, limit=5, cursor=cursor)
        assert len(page["traces"]) <= 5
        seen += page["traces"]
        cursor = page["next"]
    assert sorted(t["trace_id"] for t in seen) == sorted(t.hex() for t in traces)
    values = [t[f"{order}_ns"] for t in seen]
    assert values == sorted(values, reverse=True)


def test_a_selector_of_other_labels_leaves_only_requests_with_such_samples(api: Api, client: Client) -> None:
    labels = {"service": "checkout", "version": "1.5"}
    fill(client, [Sample((MAIN,), trace_id=A, labels=labels), Sample((MAIN,), trace_id=B)])
    activity(client, A, S1, 5)
    answer = api.json("/api/v1/traces", selector='{version="1.5"}')["traces"]
    assert [t["trace_id"] for t in answer] == [A.hex()]
