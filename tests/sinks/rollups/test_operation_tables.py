"""An hour of operations is built from whichever table has rows of it, in as many statements as it needs."""

import random
import threading
from itertools import pairwise

import pytest
from clickhouse_connect.driver.client import Client

from icestream.clickhouse.rollups import OPERATION_MINUTES
from sinks.rollups import builder, operation_tables
from sinks.rollups.buckets import Bucket
from tests.data.tables import insert_rows, to_datetime
from tests.sinks.messages import START_MS

HOUR_S = START_MS // 3_600_000 * 3600
SPAN = {"trace_id": b"a" * 16, "span_id": b"b" * 8, "service": "checkout"}
ACTIVITY = SPAN | {"operation": "GET /", "entry_span_id": b"c" * 8}
ROWS = {
    "samples": SPAN | {"time": to_datetime(HOUR_S + 60), "count": 1, "value": 10},  # of a request of the hour before
    "activity": ACTIVITY | {"start_time": to_datetime(HOUR_S + 60), "duration_ns": 100, "thread_cpu_ns": 10},
    "entry_spans": SPAN | {"operation": "GET /", "start_time": to_datetime(HOUR_S + 60), "duration_ns": 10},
}


@pytest.mark.parametrize("table", ROWS)
def test_an_hour_that_has_rows_in_one_table_only_is_built(client: Client, table: str) -> None:
    insert_rows(client, table, [ROWS[table]])
    others = ROWS.keys() - {table}
    assert not any(client.query(f"SELECT count() FROM {other}").result_rows[0][0] for other in others)
    assert builder.build(client, Bucket(OPERATION_MINUTES, HOUR_S))
    found = client.query("SELECT sum(value), sum(thread_cpu_ns), sum(requests) FROM operation_minutes").result_rows
    assert found == [{"samples": (10, 0, 0), "activity": (0, 10, 0), "entry_spans": (0, 0, 1)}[table]]


@pytest.mark.parametrize("first_bytes", [b"", bytes(8), b"\xff" * 12], ids=["random", "64 bits", "of one prefix"])
def test_an_hour_with_many_spans_is_divided_into_ranges_of_traces(
    client: Client, monkeypatch: pytest.MonkeyPatch, first_bytes: bytes
) -> None:
    choose = random.Random(1)
    traces = [(first_bytes + choose.randbytes(16))[:16] for _ in range(990)]
    rows = [ROWS["entry_spans"] | {"trace_id": trace} for trace in traces]
    insert_rows(client, "entry_spans", [*rows, ROWS["entry_spans"] | {"start_time": to_datetime(HOUR_S - 1)}])
    assert len(operation_tables.trace_ranges(client, HOUR_S)) == 1
    monkeypatch.setattr(operation_tables, "SPANS_AT_ONCE", 100)
    bounds = [(each["first_trace"], each["last_trace"]) for each in operation_tables.trace_ranges(client, HOUR_S)]
    assert len(bounds) == 10
    assert (bounds[0][0], bounds[-1][1]) == ("00" * 16, "ff" * 16)
    assert all(int(last, 16) + 1 == int(first, 16) for (_, last), (first, _) in pairwise(bounds))
    counts = [sum(first <= trace.hex() <= last for trace in traces) for first, last in bounds]
    assert sum(counts) == 990
    assert max(counts) <= 110
    assert builder.build(client, Bucket(OPERATION_MINUTES, HOUR_S))
    found = client.query("SELECT count(), sum(requests), sum(request_duration_ns) FROM operation_minutes").result_rows
    assert found == [(10, 990, 9900)]  # a row for each range


def test_traces_of_any_size_are_divided_by_their_spans(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans of the hour before count, too: samples may be of them."""
    choose, sizes = random.Random(2), [1] * 300 + [40] * 20 + [300] * 4
    choose.shuffle(sizes)
    traces = [choose.randbytes(16) for _ in sizes]
    rows = [
        ACTIVITY | {"trace_id": trace, "span_id": choose.randbytes(8), "duration_ns": 1, "thread_cpu_ns": 1}
        | {"start_time": to_datetime(HOUR_S - 60 + choose.randrange(120))}
        for trace, size in zip(traces, sizes, strict=True) for _ in range(size)
    ]  # fmt: skip
    insert_rows(client, "activity", rows)
    monkeypatch.setattr(operation_tables, "SPANS_AT_ONCE", 500)
    monkeypatch.setattr(operation_tables, "_CHOSEN_SPANS", 100)
    bounds = operation_tables.trace_ranges(client, HOUR_S)
    assert len(bounds) == 5
    spans = [
        sum(size for trace, size in zip(traces, sizes, strict=True)
            if each["first_trace"] <= trace.hex() <= each["last_trace"]) for each in bounds
    ]  # fmt: skip
    assert sum(spans) == len(rows)
    assert max(spans) <= 500 + 300  # and a trace


def test_a_build_of_several_statements_is_given_up_when_the_sink_stops(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_tables, "SPANS_AT_ONCE", 10)
    rows = [ROWS["entry_spans"] | {"trace_id": bytes([n]) * 16} for n in range(100)]
    insert_rows(client, "entry_spans", rows)
    stop = threading.Event()
    monkeypatch.setattr(builder, "wait_for_replicas", lambda client, cluster, *tables: stop.set())
    assert not builder.build(client, Bucket(OPERATION_MINUTES, HOUR_S), stop=stop)
    assert client.query("SELECT countIf(state = 'built') FROM rollup_builds").result_rows == [(0,)]
    monkeypatch.undo()
    assert builder.build(client, Bucket(OPERATION_MINUTES, HOUR_S))


def test_an_hour_of_one_trace_is_not_divided(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_tables, "SPANS_AT_ONCE", 10)
    insert_rows(client, "entry_spans", [ROWS["entry_spans"] | {"span_id": bytes([n] * 8)} for n in range(100)])
    assert len(operation_tables.trace_ranges(client, HOUR_S)) <= 2
