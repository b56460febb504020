"""Samples of programs that send spans, but no activity, have the operation of the entry span above their span."""

from dataclasses import dataclass, replace

import pytest
from clickhouse_connect.driver.client import Client
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from api.settings import ApiSettings
from icestream.topics import DEFAULT_PROFILE_TYPE
from tests.api.conftest import Api, remove_rows
from tests.api.fill import START_S, Sample, fill
from tests.api.queries.operations_data import MAIN, SAMPLE_NS, Request, insert_requests
from tests.data.tables import NO_SPAN, NO_TRACE, insert_rows, to_datetime
from tests.examples import examples

TRACE = b"t" * 16


def of(span: int) -> bytes:
    return span.to_bytes(8, "big")


@dataclass(frozen=True)
class Span:
    """A span of a trace; `operation`: of an entry span."""

    span: int
    parent: int = 0
    operation: str = ""
    service: str = "shop"
    trace: bytes = TRACE
    at_s: float = 60.0


def report(client: Client, spans: list[Span]) -> None:
    rows = [
        {
            "trace_id": s.trace, "span_id": of(s.span), "parent_span_id": of(s.parent), "host_id": "pod",
            "name": s.operation or f"span {s.span}", "service": s.service, "operation": s.operation,
            "start_time": to_datetime(START_S + s.at_s), "end_time": to_datetime(START_S + s.at_s + 0.05),
        }
        for s in spans
    ]  # fmt: skip
    insert_rows(client, "spans", rows)


def sampled(spans: list[Span], count: int = 1) -> list[Sample]:
    return [
        Sample((MAIN,), SAMPLE_NS, labels={"service": s.service}, time_s=START_S + s.at_s + 0.01, trace_id=s.trace,
               span_id=of(s.span))
        for s in spans
    ] * count  # fmt: skip


def by_operation(api: Api) -> dict[tuple[str, str], int]:
    line = api.json("/api/v1/timeline", sum_by="service,operation", step="1h")
    return {tuple(g["labels"].values()): sum(g["samples"]) for g in line["groups"] if sum(g["samples"])}


ENTRY = Span(1, 0, "GET /checkout")
RENDER, LOAD = Span(2, 1), Span(3, 2)
CHARGE, BOOK = Span(11, 2, "POST /charge", "pay"), Span(12, 11, "", "pay")
ALL = [LOAD, RENDER, BOOK, CHARGE, ENTRY]


def test_a_span_belongs_to_the_entry_span_above_it_once_all_between_are_reported(api: Api, client: Client) -> None:
    fill(client, sampled(ALL) + sampled([Span(99)], 2))
    assert by_operation(api) == {("shop", ""): 5, ("pay", ""): 2}
    report(client, [LOAD, BOOK])
    assert by_operation(api) == {("shop", ""): 5, ("pay", ""): 2}
    report(client, [ENTRY, CHARGE])
    assert by_operation(api) == {
        ("shop", "GET /checkout"): 1, ("shop", ""): 4, ("pay", "POST /charge"): 2
    }  # fmt: skip
    report(client, [RENDER])
    report(client, ALL)  # again
    assert by_operation(api) == {
        ("shop", "GET /checkout"): 3, ("shop", ""): 2, ("pay", "POST /charge"): 2
    }  # fmt: skip
    merged = api.json("/api/v1/merge", selector='{operation="GET /checkout"}')
    assert merged["samples"] == 3
    assert api.json("/api/v1/labels/operation/values")["values"] == ["GET /checkout", "POST /charge"]
    (shop,) = api.json("/api/v1/operations", selector='{service="shop"}')["operations"]
    assert (shop["operation"], shop["requests"], shop["samples"]) == ("GET /checkout", 1, 3)
    cpu = api.json(f"/api/v1/traces/{TRACE.hex()}/cpu")
    assert cpu["like"]["selector"] == '{service="shop", operation="GET /checkout"}'


def test_slow_requests_are_compared_by_all_their_reported_spans(api: Api, client: Client) -> None:
    fast, slow = ([Span(1, 0, "GET /", trace=t), Span(2, 1, trace=t)] for t in (b"f" * 16, b"s" * 16))
    fill(client, sampled(fast, 1) + sampled(slow, 5))
    report(client, [*fast, *slow])
    longer = {
        "trace_id": slow[0].trace, "span_id": of(1), "parent_span_id": NO_SPAN, "host_id": "pod", "name": "GET /",
        "service": "shop", "operation": "GET /", "start_time": to_datetime(START_S + 60),
        "end_time": to_datetime(START_S + 63),
    }  # fmt: skip
    insert_rows(client, "spans", [longer])
    answer = api.json("/api/v1/operations/slow", selector='{service="shop", operation="GET /"}', fast=10)
    assert (answer["samples"], answer["baseline_samples"]) == (10, 2)


def test_slow_requests_have_their_samples_of_hours_later(api: Api, client: Client) -> None:
    fast, slow = (Span(1, 0, "GET /", trace=t) for t in (b"f" * 16, b"s" * 16))
    fill(client, sampled([fast, slow, replace(slow, at_s=60 + 5 * 3600)]))
    report(client, [fast, slow])
    client.command(
        "INSERT INTO spans SELECT * REPLACE (end_time + INTERVAL 6 HOUR AS end_time) FROM spans"
        f" WHERE trace_id = '{'s' * 16}'"
    )
    answer = api.json("/api/v1/operations/slow", selector='{service="shop", operation="GET /"}', fast=10)
    assert (answer["samples"], answer["baseline_samples"]) == (2, 1)


def test_what_activity_says_of_a_span_counts(api: Api, client: Client) -> None:
    known = Request(1, "GET /known", samples=1, inner_samples=1)
    insert_requests(client, [known])
    both = [Span(2, 0, "GET /reported", trace=known.trace_id), Span(3, 2, trace=known.trace_id)]
    plain = Span(77, 3, trace=known.trace_id)
    report(client, [*both, plain])
    fill(client, sampled([plain]))
    found = by_operation(api)
    assert found[("shop", "GET /known")] == 2
    assert sum(found.values()) == 3


def test_spans_in_a_circle_and_requests_of_very_many_spans_belong_to_none(api: Api, client: Client) -> None:
    circle = [Span(1, 2), Span(2, 1), Span(3, 3)]
    many = [Span(i, i - 1, "" if i > 1 else "GET /deep", trace=b"m" * 16) for i in range(1, 4002)]
    deep = [Span(i, i - 1, "" if i > 1 else "GET /deep", trace=b"d" * 16) for i in range(1, 4001)]
    fill(client, sampled([*circle, many[-1], deep[-1]]))
    report(client, [*circle, *many, *deep])
    assert by_operation(api) == {("shop", ""): 4, ("shop", "GET /deep"): 1}


def insert_chains(client: Client, first: int, requests: int, spans: int) -> None:
    """Inserts requests, each a chain of spans below an entry span, with a sample in the last one."""
    client.command(
        "INSERT INTO spans (trace_id, span_id, parent_span_id, service, operation, start_time, end_time)"
        f" WITH intDiv(number, {spans}) + {first} AS request, number % {spans} AS above"
        " SELECT toFixedString(reinterpretAsString(request), 16), toFixedString(reinterpretAsString(above + 1), 8),"
        " toFixedString(reinterpretAsString(above), 8), 'shop', if(above = 0, 'GET /deep', ''),"
        f" toDateTime64({START_S + 60}, 9), toDateTime64({START_S + 61}, 9) FROM numbers({requests * spans})"
    )
    last = [
        Sample((MAIN,), SAMPLE_NS, labels={"service": "shop"}, time_s=START_S + 60.5,
               trace_id=i.to_bytes(16, "little"), span_id=spans.to_bytes(8, "little"))
        for i in range(first, first + requests)
    ]  # fmt: skip
    fill(client, last)


@pytest.mark.parametrize("settings", [ApiSettings(api_max_memory=300_000_000)])
def test_memory_grows_with_the_spans_and_not_with_their_square(api: Api, client: Client) -> None:
    insert_chains(client, 1, 20, 4000)
    insert_chains(client, 21, 1, 500_000)
    assert by_operation(api) == {("shop", "GET /deep"): 20, ("shop", ""): 1}
    (row,) = api.json("/api/v1/operations")["operations"]
    assert (row["operation"], row["samples"]) == ("GET /deep", 20)


def insert_many_samples(client: Client, service: str) -> None:
    """Inserts 100,000 samples of a span."""
    client.command(
        "INSERT INTO samples (profile_type, service, time, trace_id, span_id, count, value)"
        f" SELECT '{DEFAULT_PROFILE_TYPE}', '{service}', toDateTime64({START_S + 60}, 3), '{'a' * 16}', '{'b' * 8}',"
        " 1, 1 FROM numbers(100000)"
    )


@pytest.mark.parametrize("settings", [ApiSettings(api_max_rows=150_000)])
def test_samples_are_read_once_where_no_spans_were_sent(api: Api, client: Client) -> None:
    insert_many_samples(client, "shop")
    for label in ("operation", "span_name"):
        (line,) = api.json("/api/v1/timeline", sum_by=label, step="1h")["groups"]
        assert line["samples"] == [100_000]
    assert api.json("/api/v1/merge", selector='{operation!="GET /"}')["samples"] == 100_000
    report(client, ALL)
    assert api.get("/api/v1/timeline", sum_by="operation", step="1h").status_code == 422  # twice


@pytest.mark.parametrize("settings", [ApiSettings(api_max_rows=60_000)])
@pytest.mark.parametrize("spans", [[], ALL])
def test_no_samples_of_other_services_are_read(api: Api, client: Client, spans: list[Span]) -> None:
    insert_many_samples(client, "much")
    fill(client, sampled(ALL))
    report(client, spans)
    found = {
        label: api.json("/api/v1/timeline", selector='{service="shop"}', sum_by=label, step="1h")["groups"]
        for label in ("operation", "span_name")
    }
    assert {label: sum(sum(group["samples"]) for group in groups) for label, groups in found.items()} == {
        "operation": 3, "span_name": 3
    }  # fmt: skip
    assert [group["labels"]["operation"] for group in found["operation"]] == ["GET /checkout" if spans else ""]
    assert len(found["span_name"]) == (3 if spans else 1)


def test_an_operation_selects_and_groups_at_once(api: Api, client: Client) -> None:
    fill(client, sampled(ALL))
    report(client, ALL)
    line = api.json("/api/v1/timeline", selector='{operation!=""}', sum_by="operation,span_name", step="1h")
    assert len(line["groups"]) == 5
    merged = api.json("/api/v1/merge", selector='{operation="GET /checkout"}', group_by="operation")
    assert merged["samples"] == 3


_SPANS = st.lists(
    st.builds(
        Span,
        st.integers(1, 12), st.integers(0, 13), st.sampled_from(["", "", "GET /a", "GET /b"]),
        st.sampled_from(["shop", "pay"]), st.sampled_from([TRACE, b"u" * 16]),
        st.sampled_from([-100.0, 10.0, 3000.0]),
    ),
    max_size=25,
    unique_by=lambda each: (each.trace, each.span),
)  # fmt: skip


@given(_SPANS, _SPANS, st.integers(0, 3))
@hypothesis_settings(
    max_examples=examples(0.2), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_operations_and_what_is_unattributed_are_all_samples(
    api: Api, client: Client, spans: list[Span], active: list[Span], plain: int
) -> None:
    remove_rows(client)
    samples = sampled(active) + sampled([Span(0, trace=NO_TRACE)], plain)
    report(client, spans)
    insert_requests(client, [Request(5, "by activity", inner_samples=1)], samples)
    expected: dict[tuple[str, str], int] = {("shop", "by activity"): 2}
    stored = {(each.trace, each.span): each for each in spans}
    for each in [*(each for each in active if each.at_s >= 0), *[None] * plain]:
        key = (each.service, _operation(stored, each)) if each else ("shop", "")
        expected[key] = expected.get(key, 0) + 1
    assert by_operation(api) == expected
    answer = api.json("/api/v1/operations")
    listed = answer["operations"] + answer["unattributed"]
    totals = {
        service: sum(samples for (of_service, _), samples in expected.items() if of_service == service)
        for service in {row["service"] for row in listed}
    }
    for service, total in totals.items():
        assert sum(row["samples"] for row in listed if row["service"] == service) == total
        assert api.json("/api/v1/merge", selector=f'{{service="{service}"}}')["samples"] == total
    with_operation = {service for (service, operation) in expected if operation}
    assert with_operation <= set(totals)


def _operation(spans: dict[tuple[bytes, int], Span], of_sample: Span) -> str:
    at = spans.get((of_sample.trace, of_sample.span))
    for _ in range(30):
        if at is None or at.operation:
            return at.operation if at else ""
        at = spans.get((at.trace, at.parent))
    return ""


@pytest.mark.parametrize("matcher", ['operation="GET /checkout"', 'operation!=""', 'operation=~"GET.*"'])
def test_requests_are_listed_by_their_reported_operation(api: Api, client: Client, matcher: str) -> None:
    fill(client, sampled(ALL))
    report(client, ALL)
    (trace,) = api.json("/api/v1/traces", selector='{service="shop", ' + matcher + "}")["traces"]
    assert (trace["trace_id"], trace["samples"]) == (TRACE.hex(), 3)
