from unittest.mock import ANY

import pytest
from clickhouse_connect.driver.client import Client

from api.terminal.draw_requests import time_lines
from tests.api.conftest import Api
from tests.api.fill import START_S, Frame, Sample, fill, frame
from tests.data.tables import NO_SPAN, NO_TRACE, insert_rows, to_datetime

MAIN, HOT = frame("main"), frame("hot")
A, B = b"a" * 16, b"b" * 16
S1, S2 = b"1" * 8, b"2" * 8


def activity(
    client: Client, trace: bytes, span: bytes, thread_cpu_ns: int, service: str = "checkout", after_s: int = 1
) -> None:
    insert_rows(client, "activity", [activity_row(trace, span, thread_cpu_ns, service, after_s)])


def activity_row(
    trace: bytes, span: bytes, thread_cpu_ns: int, service: str = "checkout", after_s: int = 1
) -> dict[str, object]:
    return {
        "trace_id": trace, "span_id": span, "host_id": "host-1", "service": service, "pid": 7,
        "start_time": to_datetime(START_S + after_s), "duration_ns": thread_cpu_ns, "thread_cpu_ns": thread_cpu_ns,
    }  # fmt: skip


def span(client: Client, trace: bytes, span_id: bytes, parent: bytes, name: str, service: str = "checkout") -> None:
    row = {
        "trace_id": trace, "span_id": span_id, "parent_span_id": parent, "name": name, "service": service,
        "host_id": "host-1", "start_time": to_datetime(START_S + 1), "end_time": to_datetime(START_S + 2),
    }  # fmt: skip
    insert_rows(client, "spans", [row])


def test_a_span_has_the_status_that_anyone_reported(api: Api, client: Client) -> None:
    for second, span_id, status in ((1, S1, "error"), (2, S1, "ok"), (1, S2, ""), (2, S2, "ok"), (1, b"3" * 8, "")):
        row = {
            "trace_id": A, "span_id": span_id, "name": "charge", "service": "pay", "host_id": f"host-{second}",
            "start_time": to_datetime(START_S - second * 86_400),  # rows of one day would become one
            "end_time": to_datetime(START_S + second), "status": status,
        }  # fmt: skip
        insert_rows(client, "spans", [row])
    activity(client, A, b"4" * 8, 1_000)
    spans = api.json(f"/api/v1/traces/{A.hex()}/cpu")["spans"]
    assert {span["span_id"]: span["status"] for span in spans} == {
        S1.hex(): "error", S2.hex(): "ok", (b"3" * 8).hex(): "", (b"4" * 8).hex(): "",
    }  # fmt: skip


def interval_ms(cpu: dict) -> tuple[float, float]:
    return cpu["sampled_cpu_low_ns"] / 1e6, cpu["sampled_cpu_high_ns"] / 1e6


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
            {"trace_id": B.hex(), "operation": "", "service": "checkout", "cpu_ns": 70_000_000,
             "thread_cpu_ns": 70_000_000, "sampled_cpu_ns": 10_000_000, "sampled_cpu_low_ns": ANY,
             "sampled_cpu_high_ns": ANY, "samples": 1, "start_unix_nano": ANY, "duration_ns": ANY, "status": ""},
            {"trace_id": A.hex(), "operation": "POST /checkout", "service": "checkout", "cpu_ns": 40_000_000,
             "thread_cpu_ns": 40_000_000, "sampled_cpu_ns": 40_000_000, "sampled_cpu_low_ns": ANY,
             "sampled_cpu_high_ns": ANY, "samples": 4, "start_unix_nano": ANY, "duration_ns": ANY, "status": ""},
        ],
        "next": None,
        "complete_above_ns": None,
        "thinned_until": None,
    }  # fmt: skip
    assert interval_ms(answer["traces"][1]) == pytest.approx((10.9, 102.4), rel=0.02)  # Garwood's of 4 samples

    def listed(**parameters: object) -> list[str]:
        return [trace["trace_id"] for trace in api.json("/api/v1/traces", **parameters)["traces"]]

    assert listed(order="sampled_cpu") == [A.hex(), B.hex()]
    assert listed(order="thread_cpu") == [B.hex(), A.hex()]
    assert listed(min_sampled_cpu_ns=20_000_000) == [A.hex()]
    assert listed(min_thread_cpu_ns=50_000_000) == listed(min_cpu_ns=50_000_000) == [B.hex()]


def test_a_listed_request_says_when_it_began_and_how_long_it_took(api: Api, client: Client) -> None:
    spans = [  # a service's clock is behind: a child begins before its root
        {"trace_id": A, "span_id": each, "parent_span_id": parent, "start_time": to_datetime(START_S + start),
         "end_time": to_datetime(START_S + end)}
        for each, parent, start, end in ((S2, S1, 1, 9), (S1, NO_SPAN, 2, 8), (b"3" * 8, S1, 3, 4))
    ]  # fmt: skip
    insert_rows(client, "spans", spans)
    activity(client, A, S1, 9, after_s=1)
    only_activity, only_samples = B, b"c" * 16
    rows = [activity_row(only_activity, NO_SPAN, 3, after_s=after) for after in (5, 2)]
    insert_rows(client, "activity", [row | {"duration_ns": 2 * 10**9} for row in rows])
    fill(client, [Sample((MAIN,), trace_id=only_samples)])
    listed = {trace["trace_id"]: trace for trace in api.json("/api/v1/traces")["traces"]}
    times = {trace: (one["start_unix_nano"], one["duration_ns"]) for trace, one in listed.items()}
    assert times == {
        A.hex(): ((START_S + 2) * 10**9, 6 * 10**9),
        only_activity.hex(): ((START_S + 2) * 10**9, 5 * 10**9),
        only_samples.hex(): (None, None),
    }


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
    assert [(host["host_id"], host["cpu_ns"], host["samples"]) for host in answer["hosts"]] == [
        ("host-1", 40_000_000, 4)
    ]
    assert answer["few_samples"]
    assert answer["expected_samples"] == 4
    collapsed = api.get(f"/api/v1/traces/{A.hex()}/cpu", format="collapsed", scale="sampled_cpu").text
    assert sorted(collapsed.splitlines()) == ["main 10000000", "main;hot 30000000"]
    tree = api.json(f"/api/v1/traces/{A.hex().upper()}/cpu", format="tree", scale="sampled_cpu")
    assert (tree["total"], tree["unsampled_cpu_ns"]) == (40_000_000, 0)


def test_an_unknown_trace_is_404_with_a_hint(api: Api) -> None:
    answer = api.get(f"/api/v1/traces/{'0' * 31}1/cpu")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "unknown_trace"
    assert "/api/v1/traces" in answer.json()["error"]["hint"]


@pytest.mark.parametrize("trace_id", ["xyz", "0" * 32, "a" * 31, "a" * 33, "%27 OR 1", NO_TRACE.hex()])
def test_what_is_no_trace_id_is_400(api: Api, trace_id: str) -> None:
    answer = api.get(f"/api/v1/traces/{trace_id}/cpu")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_trace_id")


def test_pages_hold_every_request_once_in_order(api: Api, client: Client) -> None:
    traces = [bytes([i]) * 16 for i in range(1, 24)]
    fill(client, [Sample((MAIN,), value=i % 5, trace_id=trace) for i, trace in enumerate(traces)])
    insert_rows(client, "activity", [activity_row(trace, S1, i % 7) for i, trace in enumerate(traces)])
    for order in ("cpu", "sampled_cpu", "thread_cpu"):
        seen, cursor = [], ""
        while cursor is not None:
            page = api.json("/api/v1/traces", order=order, limit=8, cursor=cursor)
            assert len(page["traces"]) <= 8
            seen += page["traces"]
            cursor = page["next"]
        assert sorted(t["trace_id"] for t in seen) == sorted(t.hex() for t in traces)
        values = [t[f"{order}_ns"] for t in seen]
        assert values == sorted(values, reverse=True)


def test_a_selector_of_other_labels_leaves_only_requests_with_such_samples(api: Api, client: Client) -> None:
    labels = {"service": "checkout", "version": "1.5"}
    fill(client, [Sample((MAIN,), trace_id=A, labels=labels), Sample((MAIN,), trace_id=B)])
    activity(client, A, S1, 5)
    activity(client, B, S1, 7)
    insert_rows(client, "activity", [activity_row(A, S1, 11) | {"pid": 99}])  # of a process without such samples
    answer = api.json("/api/v1/traces", selector='{version="1.5"}')["traces"]
    assert [(t["trace_id"], t["thread_cpu_ns"], t["cpu_ns"]) for t in answer] == [(A.hex(), 5, 5)]


def test_requests_rank_by_the_clock_and_by_samples_in_services_without_one(api: Api, client: Client) -> None:
    lucky, heavy, mixed = b"l" * 16, b"h" * 16, b"m" * 16
    fill(client, [Sample((MAIN,), trace_id=lucky)] * 19 + [Sample((MAIN,), trace_id=heavy)] * 2)
    fill(client, [Sample((MAIN,), trace_id=mixed), Sample((MAIN,), trace_id=mixed, labels={"service": "go"}, value=7)])
    for trace, cpu_ns in ((lucky, 152), (heavy, 153), (mixed, 150)):
        activity(client, trace, S1, cpu_ns)
    answer = api.json("/api/v1/traces")["traces"]
    assert [(t["trace_id"], t["cpu_ns"], t["thread_cpu_ns"]) for t in answer] == [
        (mixed.hex(), 157, 150), (heavy.hex(), 153, 153), (lucky.hex(), 152, 152)
    ]  # fmt: skip
    one = api.json(f"/api/v1/traces/{mixed.hex()}/cpu")
    assert one["cpu_ns"] == 157
    assert [(s["service"], s["cpu_ns"]) for s in one["services"]] == [("checkout", 150), ("go", 7)]
    assert sum(span["cpu_ns"] for span in one["spans"]) == sum(host["cpu_ns"] for host in one["hosts"]) == 157


def test_a_request_without_samples_says_what_its_service_is_sampled_at(api: Api, client: Client) -> None:
    fill(client, [Sample((MAIN,), value=52_631_578)])
    activity(client, A, S1, 30_000_000)
    activity(client, B, S1, 30_000_000, service="never sampled")
    listed = {trace["trace_id"]: trace for trace in api.json("/api/v1/traces")["traces"]}
    assert interval_ms(listed[A.hex()]) == pytest.approx((0, 3.69 * 52.6), rel=0.01)
    assert listed[B.hex()]["sampled_cpu_high_ns"] is None
    half = api.json(f"/api/v1/traces/{A.hex()}/cpu")
    assert (half["expected_samples"], half["few_samples"], half["samples"]) == (0.57, True, 0)
    assert api.json("/api/v1/merge", **half["like"])["total"] == 52_631_578
    unknown = api.json(f"/api/v1/traces/{B.hex()}/cpu")
    assert (unknown["expected_samples"], unknown["sampled_cpu_low_ns"]) == (None, None)
    tree = api.json(f"/api/v1/traces/{A.hex()}/cpu", format="tree")
    assert (tree["total"], tree["unsampled_cpu_ns"], tree["expected_samples"]) == (0, 30_000_000, 0.57)


def test_requests_like_one_are_those_of_its_operation(api: Api, client: Client) -> None:
    rare, other = b"r" * 16, b"o" * 16
    fill(client, [Sample((MAIN,), trace_id=A, span_id=S1)] * 12 + [Sample((HOT,), trace_id=other, span_id=S2)])
    rows = [(A, S1, "GET /a"), (rare, S2, "GET /a"), (other, S2, "GET /b")]
    insert_rows(client, "activity", [activity_row(t, s, 9) | {"operation": name} for t, s, name in rows])
    like = api.json(f"/api/v1/traces/{rare.hex()}/cpu")["like"]
    assert like["selector"] == '{service="checkout", operation="GET /a"}'
    assert api.json("/api/v1/merge", **like)["samples"] == 12
    listed = api.json("/api/v1/traces", selector='{operation="GET /a"}')["traces"]
    assert {trace["trace_id"] for trace in listed} == {A.hex(), rare.hex()}


def test_requests_like_one_have_a_label_as_operation_only_where_activity_of_any_service_tells_none(
    api: Api, client: Client
) -> None:
    labels = {"service": "checkout", "span_name": "inner"}
    fill(client, [Sample((MAIN,), trace_id=trace, span_id=S1, labels=labels) for trace in (A, B)])
    insert_rows(client, "activity", [activity_row(A, S1, 9, service="shop") | {"operation": "GET /a"}])
    known, unknown = (api.json(f"/api/v1/traces/{trace.hex()}/cpu")["like"] for trace in (A, B))
    assert known["selector"] == '{service="checkout"}'
    assert unknown["selector"] == '{service="checkout", operation="inner"}'
    assert [api.json("/api/v1/merge", **like)["samples"] for like in (known, unknown)] == [2, 1]


def test_a_graph_is_scaled_to_the_clock_of_each_service(api: Api, client: Client) -> None:
    cart = {"service": "cart"}
    fill(client, [Sample((MAIN, HOT), trace_id=A)] * 2 + [Sample((MAIN,), trace_id=A)])
    fill(client, [Sample((MAIN,), trace_id=A, labels=cart, host="host-2")])
    for service, cpu_ns in (("checkout", 10_000_000), ("payment", 5)):
        activity(client, A, S1, cpu_ns, service)
    route = f"/api/v1/traces/{A.hex()}/cpu"
    collapsed = sorted(api.get(route, format="collapsed").text.splitlines())
    assert collapsed == ["main 13333333", "main;hot 6666667"]  # cart has no clock
    tree = api.json(route, format="tree")
    assert (tree["total"], tree["unsampled_cpu_ns"], tree["cpu_ns"]) == (20_000_000, 5, 20_000_005)
    assert (tree["samples"], tree["sampled_cpu_ns"], tree["scale"]) == (4, 40_000_000, "cpu")
    other = "off_cpu:off_cpu:nanoseconds:off_cpu:nanoseconds"
    fill(client, [Sample((MAIN,), 3, trace_id=A, profile_type=other)])
    waits = api.json(route, format="tree", profile_type=other)
    assert (waits["total"], waits["unsampled_cpu_ns"], waits["sampled_cpu_low_ns"]) == (3, 0, None)
    assert [t["cpu_ns"] for t in api.json("/api/v1/traces", profile_type=other)["traces"]] == [3]


def test_the_total_of_a_request_is_that_of_all_its_spans(api: Api, client: Client) -> None:
    spans = [i.to_bytes(8, "big") for i in range(1, 12_001)]
    fill(client, [Sample((MAIN,), 3, trace_id=A, span_id=span, host=f"host-{i}") for i, span in enumerate(spans)])
    insert_rows(client, "activity", [activity_row(A, span, 2) for span in spans])
    answer = api.json(f"/api/v1/traces/{A.hex()}/cpu")
    assert (answer["cpu_ns"], answer["sampled_cpu_ns"], answer["samples"]) == (24_000, 36_000, 12_000)
    assert (len(answer["spans"]), answer["more_spans"]) == (10_000, 2_000)
    assert (len(answer["hosts"]), answer["more_hosts"]) == (10_000, 2_000)


KERNEL = 2
OFF_CPU = "off_cpu:off_cpu:nanoseconds:off_cpu:nanoseconds"
MS = 10**6


def kernel(name: str) -> Frame:
    return Frame((name,), abs(hash(name)) % 2**40, "[kernel]", kind=KERNEL)


def waits_of(client: Client, *waits: tuple[str, int, bytes], followed_of: int = 1) -> None:
    """Off-CPU samples of a request: function of the kernel, milliseconds and span; and the batch that they were in."""
    fill(
        client,
        [
            Sample((MAIN, kernel(name), kernel("schedule")), ms * MS, trace_id=A, span_id=span, profile_type=OFF_CPU)
            for name, ms, span in waits
        ],
    )
    batch = {"kind": "samples", "collector": "host-1", "profile_type": OFF_CPU, "period": followed_of}
    insert_rows(
        client, "batches", [batch | {"first_time": to_datetime(START_S), "last_time": to_datetime(START_S + 5)}]
    )


def interval(tid: int, span_id: bytes, start_ms: int, duration_ms: int, cpu_ms: int) -> dict[str, object]:
    start = to_datetime(START_S + 1 + start_ms / 1000)
    row = activity_row(A, span_id, cpu_ms * MS) | {"tid": tid, "start_time": start}
    return row | {"duration_ns": duration_ms * MS}


def test_the_time_of_a_request_is_cpu_and_waits_by_reason(api: Api, client: Client) -> None:
    span(client, A, S1, NO_SPAN, "POST /checkout")  # one second
    rows = [interval(1, S1, 0, 600, 20), interval(1, S2, 600, 300, 80), interval(1, S1, 900, 100, 10)]
    insert_rows(client, "activity", rows)
    waits_of(
        client,
        ("futex_do_wait", 500, S1),
        ("futex_wait_queue_me", 60, S1),
        ("tcp_recvmsg", 200, S2),
        ("[run queue]", 9, S2),
    )
    answer = api.json(f"/api/v1/traces/{A.hex()}/cpu")
    assert answer["time"] == {
        "duration_ns": 1000 * MS, "thread_time_ns": 1000 * MS, "threads": 1, "no_thread_ns": 0, "cpu_ns": 110 * MS,
        "waits": {"lock": 560 * MS, "network": 200 * MS, "run_queue": 9 * MS}, "off_cpu_low_ns": 769 * MS,
        "off_cpu_high_ns": 769 * MS, "followed_of": 1, "unprofiled_hosts": [], "unexplained_ns": 121 * MS,
    }  # fmt: skip
    assert list(answer["time"]["waits"]) == ["lock", "network", "run_queue"]  # the longest first
    assert {span["span_id"]: (span["thread_time_ns"], span["waits"]) for span in answer["spans"]} == {
        S1.hex(): (700 * MS, {"lock": 560 * MS}),
        S2.hex(): (300 * MS, {"network": 200 * MS, "run_queue": 9 * MS}),
    }
    assert time_lines(answer["time"]) == [
        "1 s = 110 ms CPU + 560 ms lock + 200 ms network + 9 ms run queue + 121 ms unexplained"
    ]
    assert api.json(f"/api/v1/traces/{A.hex()}/cpu", profile_type=OFF_CPU)["time"] is None


def test_time_on_no_thread_and_on_several_is_told(api: Api, client: Client) -> None:
    span(client, A, S1, NO_SPAN, "GET /feed")
    insert_rows(client, "activity", [interval(1, S1, 0, 100, 10), interval(2, S1, 400, 300, 0)])
    waits_of(client, ("do_nanosleep", 300, S1))
    time = api.json(f"/api/v1/traces/{A.hex()}/cpu")["time"]
    assert (time["no_thread_ns"], time["threads"], time["unexplained_ns"]) == (600 * MS, 2, 90 * MS)
    assert time_lines(time) == ["1 s = 10 ms CPU + 300 ms sleep + 600 ms on no thread + 90 ms unexplained"]
    insert_rows(client, "activity", [interval(3, S1, 0, 1000, 500)])
    time = api.json(f"/api/v1/traces/{A.hex()}/cpu")["time"]
    assert time_lines(time) == ["1 s, 1.4 s of 3 threads = 510 ms CPU + 300 ms sleep + 590 ms unexplained"]


def test_where_waits_are_not_profiled_a_line_says_how(api: Api, client: Client) -> None:
    span(client, A, S1, NO_SPAN, "GET /feed")
    insert_rows(client, "activity", [interval(1, S1, 0, 1000, 10)])
    time = api.json(f"/api/v1/traces/{A.hex()}/cpu")["time"]
    assert time["waits"] is None
    assert time_lines(time) == [
        "1 s = 10 ms CPU + 990 ms unexplained",
        "waits are not profiled on host-1: icestream collect --off-cpu 1 profiles them",
    ]


def test_a_share_of_the_waits_says_how_sure_it_is(api: Api, client: Client) -> None:
    span(client, A, S1, NO_SPAN, "GET /feed")
    insert_rows(client, "activity", [interval(1, S1, 0, 1000, 10)])
    waits_of(client, ("do_nanosleep", 700, S1), ("futex_do_wait", 500, S1), followed_of=10)
    time = api.json(f"/api/v1/traces/{A.hex()}/cpu")["time"]
    assert (time["off_cpu_low_ns"], time["off_cpu_high_ns"], time["unexplained_ns"]) == (0, 990 * MS, -210 * MS)
    assert time_lines(time) == [
        "1 s = 10 ms CPU + 700 ms sleep + 500 ms lock",
        "one wait in 10 was followed and stands for all: waits are 0 to 990 ms (95 %)",
    ]
