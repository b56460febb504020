"""The SQL of docs/tracing.md over a table of the OpenTelemetry Collector's ClickHouse exporter."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from icestream.clickhouse.client import connect
from sinks.clickhouse.migrate import migrate

VIEW, QUERY = re.findall(
    r"^```sql\n(.*?)^```$", (Path(__file__).parents[2] / "docs/tracing.md").read_text(), re.MULTILINE | re.DOTALL
)
TRACE, ROOT, CHILD = "0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7", "b7ad6b7169203331"
CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"

OTEL_TRACES = """
CREATE TABLE otel_traces
(
    Timestamp DateTime64(9), TraceId String, SpanId String, ParentSpanId String, TraceState String,
    SpanName LowCardinality(String), SpanKind LowCardinality(String), ServiceName LowCardinality(String),
    ResourceAttributes Map(LowCardinality(String), String), ScopeName String, ScopeVersion String,
    SpanAttributes Map(LowCardinality(String), String), Duration UInt64, StatusCode LowCardinality(String),
    StatusMessage String
)
ENGINE = MergeTree ORDER BY (ServiceName, SpanName, toDateTime(Timestamp))
"""  # as the exporter makes it (clickhouseexporter, sqltemplates), without events and links


@pytest.fixture(scope="module")
def client(engine: str) -> Iterator[Client]:
    admin = connect(engine)
    admin.command("CREATE DATABASE otel_view_tests")
    client = connect(engine, database="otel_view_tests")
    migrate(client)
    client.command(OTEL_TRACES)
    client.command(VIEW)
    yield client
    client.close()
    admin.close()


def test_the_view_gives_spans_their_own_cpu_in_the_range(client: Client) -> None:
    spans = [
        ("16:30:00", ROOT, "", "GET /checkout"),
        ("16:30:01", CHILD, ROOT, "render"),
        ("14:00:00", ROOT, "", "old"),
    ]
    for time, span, parent, name in spans:
        client.command(
            "INSERT INTO otel_traces (Timestamp, TraceId, SpanId, ParentSpanId, SpanName, ServiceName, Duration)"
            f" VALUES ('2026-11-22 {time}', '{TRACE}', '{span}', '{parent}', '{name}', 'shop', 200000000)"
        )
    for time, span, cpu_ns in [("16:30:00", ROOT, 3e6), ("16:30:01", CHILD, 5e6), ("16:30:02", CHILD, 6e6)]:
        client.command(
            "INSERT INTO activity (trace_id, span_id, start_time, thread_cpu_ns)"
            f" VALUES (unhex('{TRACE}'), unhex('{span}'), '2026-11-22 {time}', {int(cpu_ns)})"
        )
    for time, kind in [("16:30:01", CPU), ("16:30:02", CPU), ("17:00:00", CPU), ("16:30:01", "memory:x:bytes:y:z")]:
        client.command(
            "INSERT INTO trace_samples (trace_id, span_id, time, profile_type, value)"
            f" VALUES (unhex('{TRACE}'), unhex('{CHILD}'), '2026-11-22 {time}', '{kind}', 10000000)"
        )
    rows = [tuple(row) for row in client.query(QUERY).result_rows]
    assert rows == [("shop", "render", 1, 11.0, 20.0, 200.0), ("shop", "GET /checkout", 1, 3.0, 0.0, 200.0)]
