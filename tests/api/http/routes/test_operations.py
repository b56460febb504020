"""Operations of services: requests, sums and percentiles; with what is unattributed they are all samples."""

import numpy as np
import pytest
from clickhouse_connect.driver.client import Client

from api.queries.operations.confidence import Sampled
from api.terminal.draw_operations import draw_operations
from icestream.topics import OFF_CPU_PROFILE_TYPE
from tests.api.conftest import Api
from tests.api.fill import SEEN, START_S, Sample
from tests.api.queries.operations_data import MAIN, SAMPLE_NS, Request, insert_requests
from tests.api.queries.two_versions import CART, CHECKOUT, COSTS, SLOWER, Version, insert_versions
from tests.data.tables import NO_SPAN, insert_rows, insert_series, to_datetime

A, B = "GET /a", "GET /b"
MS = 10**6


def plain(service: str, count: int, at_s: float = 60) -> list[Sample]:
    return [Sample((MAIN,), SAMPLE_NS, labels={"service": service}, time_s=START_S + at_s)] * count


@pytest.fixture
def two(client: Client) -> None:
    """Two operations of `shop`, one of `pay`, and a service that is not traced."""
    insert_requests(
        client,
        [
            Request(1, A, cpu_ns=10 * MS, duration_ns=20 * MS, samples=3, status="ok"),
            Request(2, A, cpu_ns=30 * MS, duration_ns=80 * MS, samples=0, inner_samples=1, status="error"),
            Request(3, B, cpu_ns=100 * MS, duration_ns=100 * MS),
            Request(4, "charge", cpu_ns=MS, service="pay", samples=0),
            Request(5, A, cpu_ns=8 * MS, at_s=-100),  # before
            Request(6, "late", cpu_ns=50 * MS, samples=2, ended=False),
        ],
        plain("shop", 5) + plain("plain", 9) + plain("shop", 2, at_s=-50),
    )


@pytest.mark.usefixtures("two")
def test_an_operation_has_its_requests_and_sums(api: Api) -> None:
    answer = api.json("/api/v1/operations", selector='{service="shop"}')
    rows = {row["operation"]: row for row in answer["operations"]}
    assert [row["operation"] for row in answer["operations"]] == [B, "late", A]
    a = rows[A]
    assert (a["requests"], a["samples"], a["sampled_cpu_ns"], a["thread_cpu_ns"]) == (2, 4, 4 * SAMPLE_NS, 40 * MS)
    assert (a["previous_requests"], a["previous_sampled_cpu_ns"], a["previous_thread_cpu_ns"]) == (1, SAMPLE_NS, 8 * MS)
    assert (a["mean_cpu_ns"], a["mean_duration_ns"]) == (20 * MS, 50 * MS)
    assert a["p50_duration_ns"] == pytest.approx(20 * MS, rel=0.01)
    assert a["requests_per_second"] == pytest.approx(2 / 3600, abs=1e-6)
    assert a["share"] == pytest.approx(4 / 12, abs=1e-5)
    assert [(row["errors"], row["error_rate"]) for row in answer["operations"]] == [(0, 0.0), (0, None), (1, 0.5)]
    late = rows["late"]  # its request still runs
    assert (late["requests"], late["thread_cpu_ns"], late["p50_cpu_ns"]) == (0, 50 * MS, None)
    assert answer["count"] == 3
    low, high = Sampled(4 * SAMPLE_NS, 4, 4 * SAMPLE_NS**2, SAMPLE_NS).confidence_interval(0) or (0, 0)
    assert (a["sampled_cpu_low_ns"], a["sampled_cpu_high_ns"]) == (low, high)
    assert low < 4 * SAMPLE_NS < high


@pytest.mark.usefixtures("two")
def test_the_interval_of_an_operation_without_samples_is_that_of_its_service(api: Api, client: Client) -> None:
    insert_requests(client, [Request(9, "silent", samples=0)], [])
    rows = {row["operation"]: row for row in api.json("/api/v1/operations")["operations"]}
    assert (rows["silent"]["sampled_cpu_ns"], rows["silent"]["sampled_cpu_low_ns"]) == (0, 0)
    assert 3 * SAMPLE_NS < rows["silent"]["sampled_cpu_high_ns"] < 4 * SAMPLE_NS
    assert rows["charge"]["sampled_cpu_high_ns"] is None  # how often pay is sampled is not known
    waits = api.json("/api/v1/operations", profile_type=OFF_CPU_PROFILE_TYPE)["operations"]
    assert {row["sampled_cpu_low_ns"] for row in waits} == {None}


@pytest.mark.usefixtures("two")
def test_operations_and_what_is_unattributed_are_all_samples_of_a_service(api: Api) -> None:
    answer = api.json("/api/v1/operations")
    for service in ("shop", "pay"):
        total = api.json("/api/v1/merge", selector=f'{{service="{service}"}}')["total"]
        rows = [row for row in answer["operations"] + answer["unattributed"] if row["service"] == service]
        assert sum(row["sampled_cpu_ns"] for row in rows) == total
        of_service = api.json("/api/v1/operations", selector=f'{{service="{service}"}}', limit=1)
        assert of_service["total"] == total
    (shop,) = answer["unattributed"]
    assert (shop["service"], shop["samples"], shop["previous_sampled_cpu_ns"]) == ("shop", 5, 2 * SAMPLE_NS)
    assert {row["service"] for row in answer["operations"]} == {"shop", "pay"}  # `plain` is not traced


@pytest.mark.usefixtures("two")
def test_pages_and_orders_have_every_operation_once(api: Api) -> None:
    for order in ("requests", "p95_duration", "growth", "name", "mean_cpu", "sampled_cpu"):
        listed, offset = [], 0
        while offset is not None:
            page = api.json("/api/v1/operations", order=order, limit=2, offset=offset)
            listed += page["operations"]
            offset = page["next"]
        assert sorted(row["operation"] for row in listed) == sorted([A, B, "late", "charge"])
        if order == "p95_duration":
            values = [row["p95_duration_ns"] or 0 for row in listed]
            assert values == sorted(values, reverse=True)
    assert next(row["operation"] for row in api.json("/api/v1/operations", order="requests")["operations"]) == A


def test_growth_is_that_of_one_request_and_more_traffic_is_none(api: Api, client: Client) -> None:
    insert_versions(
        client,
        Version({"render": 4.0}, 0, 50), Version({"render": 4.0}, 180, 500),
        Version(COSTS, 0, 50, operation=CART), Version(SLOWER, 180, 50, operation=CART),
    )  # fmt: skip
    times = {"start": START_S + 180, "end": START_S + 360, "order": "growth"}
    rows = api.json("/api/v1/operations", **times)["operations"]
    more = [row["sampled_cpu_ns"] - row["previous_sampled_cpu_ns"] for row in rows]
    assert [row["operation"] for row in rows] == [CART, CHECKOUT]
    assert more[1] > more[0]


@pytest.mark.usefixtures("two")
def test_operations_are_selected_by_service_and_operation(api: Api, client: Client) -> None:
    insert_series(client, [{"version": "1"}], SEEN)
    answer = api.json("/api/v1/operations", selector='{operation=~"GET.*"}')
    assert [row["operation"] for row in answer["operations"]] == [B, A]
    assert answer["unattributed"][0]["samples"] == 5
    assert answer["total"] == sum(row["sampled_cpu_ns"] for row in answer["operations"])
    assert answer["samples"] == sum(row["samples"] for row in answer["operations"])
    both = '{version="1", operation=~"GET.*", service="shop", span_name!="x"}'
    skipped = api.json("/api/v1/operations", selector=both, skip_labels=True)
    assert skipped["skipped_labels"] == ["span_name", "version"]
    assert skipped == api.json("/api/v1/operations", selector='{operation=~"GET.*", service="shop"}') | {
        "skipped_labels": ["span_name", "version"]
    }
    refused = api.get("/api/v1/operations", selector='{version="1"}')
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad_selector")


def test_percentiles_are_within_one_percent(api: Api, client: Client) -> None:
    random = np.random.default_rng(3)
    cpu = (random.lognormal(17, 1, 2000)).astype(int).tolist()
    duration = (random.pareto(2, 2000) * 1e7 + 1e6).astype(int).tolist()
    insert_requests(
        client,
        [
            Request(i + 1, A, cpu_ns=c, duration_ns=d, samples=0, at_s=i)
            for i, (c, d) in enumerate(zip(cpu, duration, strict=True))
        ],
    )
    (row,) = api.json("/api/v1/operations")["operations"]
    assert (row["requests"], row["thread_cpu_ns"]) == (2000, sum(cpu))
    for name, percent in (("p50", 50), ("p95", 95), ("p99", 99)):
        for what, values in (("cpu", cpu), ("duration", duration)):
            around = np.percentile(values, [percent - 0.1, percent + 0.1])
            assert around[0] * 0.99 <= row[f"{name}_{what}_ns"] <= around[1] * 1.01


def test_a_request_counts_once_whoever_names_it_and_has_no_cpu_where_no_clock_measured_it(
    api: Api, client: Client
) -> None:
    """OTLP spans come from another host ID than activity, and without intervals."""
    both, span_only = Request(1, A, cpu_ns=10 * MS, duration_ns=20 * MS), Request(2, B)
    insert_requests(client, [both])
    spans = [
        {
            "trace_id": each.trace_id, "span_id": each.entry_id, "parent_span_id": NO_SPAN, "host_id": "pod-1",
            "name": each.operation, "service": "shop", "start_time": to_datetime(START_S + 60),
            "end_time": to_datetime(START_S + 60.02), "operation": each.operation,
        }
        for each in (both, span_only)
    ]  # fmt: skip
    insert_rows(client, "spans", spans)
    rows = {row["operation"]: row for row in api.json("/api/v1/operations")["operations"]}
    assert (rows[A]["requests"], rows[A]["mean_cpu_ns"]) == (1, 10 * MS)
    assert (rows[B]["requests"], rows[B]["mean_duration_ns"]) == (1, 20 * MS)
    assert (rows[B]["mean_cpu_ns"], rows[B]["p50_cpu_ns"], rows[B]["thread_cpu_ns"]) == (None, None, 0)


def test_requests_without_cpu_and_services_without_requests(api: Api, client: Client) -> None:
    assert api.json("/api/v1/operations")["operations"] == []
    insert_requests(client, [Request(1, A, cpu_ns=0, duration_ns=0, samples=0)], plain("plain", 1))
    answer = api.json("/api/v1/operations")
    assert [(row["requests"], row["p99_cpu_ns"], row["p50_duration_ns"]) for row in answer["operations"]] == [(1, 0, 0)]
    assert answer["unattributed"] == []


OLD, NEW = {"service_version": "1.0"}, {"service_version": "1.1"}


@pytest.fixture
def versions(client: Client) -> None:
    """Two versions of one service beside each other, and a process without a version."""
    insert_requests(
        client,
        [
            Request(1, A, cpu_ns=10 * MS, duration_ns=20 * MS, samples=3, labels=OLD),
            Request(2, A, cpu_ns=30 * MS, duration_ns=40 * MS, samples=0, labels=OLD),
            Request(3, A, cpu_ns=50 * MS, duration_ns=90 * MS, samples=5, labels=NEW, status="error"),
            Request(4, B, cpu_ns=7 * MS, samples=1, labels=NEW),
            Request(5, B, cpu_ns=8 * MS, samples=2),
        ],
        [Sample((MAIN,), SAMPLE_NS, labels={"service": "shop"} | NEW, time_s=START_S + 60)] * 4,
    )


@pytest.mark.usefixtures("versions")
def test_operations_of_a_version_are_exactly_those_of_its_processes(api: Api) -> None:
    answer = api.json("/api/v1/operations", selector='{service_version="1.1"}', skip_labels=True)
    assert answer["skipped_labels"] == []
    assert answer == api.json("/api/v1/operations", selector='{service_version="1.1"}')
    rows = {row["operation"]: row for row in answer["operations"]}
    assert {
        name: (row["requests"], row["thread_cpu_ns"], row["samples"], row["errors"]) for name, row in rows.items()
    } == {A: (1, 50 * MS, 5, 1), B: (1, 7 * MS, 1, 0)}
    assert rows[A]["mean_duration_ns"] == 90 * MS
    assert [row["samples"] for row in answer["unattributed"]] == [4]
    for selector in (
        '{service_version="1.1"}',
        '{service_version="1.0"}',
        '{service_version=""}',
        '{service_version!~"1.*"}',
    ):
        total = api.json("/api/v1/merge", selector=selector)["total"]
        assert api.json("/api/v1/operations", selector=selector)["total"] == total > 0


@pytest.mark.usefixtures("versions")
def test_operations_are_split_by_version(api: Api) -> None:
    answer = api.json("/api/v1/operations", by="service_version", order="name")
    found = [(row["operation"], row["labels"], row["requests"], row["samples"]) for row in answer["operations"]]
    assert found == [(A, OLD, 2, 3), (A, NEW, 1, 5), (B, {}, 1, 2), (B, NEW, 1, 1)]
    assert [(row["labels"], row["samples"]) for row in answer["unattributed"]] == [(NEW, 4)]
    assert answer["total"] == api.json("/api/v1/operations")["total"]
    lines = draw_operations(answer).splitlines()
    assert lines[0].split()[-3:] == ["service", "operation", "service_version"]
    assert [line.split()[-1] for line in lines[1:]] == ["1.0", "1.1", "/b", "1.1", "1.1"]
    refused = api.get("/api/v1/operations", by="pod")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad_parameter")
    assert "ICESTREAM_REQUEST_LABELS" in refused.json()["error"]["hint"]


@pytest.mark.usefixtures("versions")
def test_requests_of_a_version_are_listed_by_their_process(api: Api, client: Client) -> None:
    """Also those without samples, and none of another version whose process has such samples."""
    client.command("ALTER TABLE activity UPDATE pid = 7 WHERE 1 SETTINGS mutations_sync = 1")
    for version, expected in (("1.0", {1, 2}), ("1.1", {3, 4})):
        for order in ("cpu", "thread_cpu"):
            listed = api.json("/api/v1/traces", selector=f'{{service_version="{version}"}}', order=order)["traces"]
            assert {int(row["trace_id"], 16) for row in listed} == expected


@pytest.mark.usefixtures("versions")
def test_slow_requests_are_compared_within_a_version(api: Api, client: Client) -> None:
    insert_requests(client, [Request(n, A, duration_ns=n * MS, samples=2, labels=NEW) for n in (10, 11, 12)])
    selector = f'{{service="shop", operation="{A}", service_version="1.1"}}'
    answer = api.json("/api/v1/operations/slow", selector=selector, slow=90)
    assert (answer["slow"]["requests"], answer["fast"]["requests"]) == (1, 2)
    assert (answer["slow"]["mean_duration_ns"], answer["samples"], answer["baseline_samples"]) == (90 * MS, 5, 4)


def test_a_change_is_that_of_one_request_and_more_traffic_is_none(api: Api, client: Client) -> None:
    old, slower, busier = "old", "GET /slower", "GET /busier"
    insert_versions(
        client,
        Version(COSTS, -200, 500, operation=slower), Version(SLOWER, 60, 500, operation=slower),
        Version(COSTS, -200, 300, operation=busier, errors=3, spread=0.1),
        Version(COSTS, 60, 1500, operation=busier, errors=150, spread=0.1),
        Version(COSTS, -200, 50, operation=old), Version(COSTS, 60, 50, operation="new"),
    )  # fmt: skip
    found = {row["operation"]: row for row in api.json("/api/v1/operations")["operations"]}
    statuses = {name: row["cpu_change"]["status"] for name, row in found.items()}
    assert statuses == {slower: "changed", busier: "same", "new": "new", old: "gone"}
    true = sum(SLOWER.values()) / sum(COSTS.values()) - 1
    assert found[slower]["cpu_change"]["change_low"] < true < found[slower]["cpu_change"]["change_high"]
    assert (found[busier]["errors"], found[busier]["previous_errors"]) == (150, 3)
    assert (found[busier]["error_change"]["status"], found[slower]["error_change"]["status"]) == ("changed", "same")
