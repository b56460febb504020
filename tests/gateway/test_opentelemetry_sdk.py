"""OpenTelemetry's Python SDK and its exporters send spans to a gateway on ports."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from gateway.settings import GatewaySettings
from icestream.messages.activity import SpanColumns, decode_activity
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY
from tests.gateway.served import Ports, serve_on_ports
from tests.pipeline.reading import messages
from tests.waiting import PATIENCE_S


@pytest.fixture
def settings(in_process_broker: KafkaSettings) -> GatewaySettings:
    return GatewaySettings(kafka=in_process_broker.kafka, gateway_ack_s=PATIENCE_S, gateway_grpc_listen="127.0.0.1:0")


@pytest.fixture
def ports(settings: GatewaySettings) -> Iterator[Ports]:
    with serve_on_ports(settings) as ports:
        yield ports


class Row(NamedTuple):
    """A span."""

    name: str
    operation: str
    service: str
    status: int
    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes


def trace_a_request(exporter: SpanExporter) -> None:
    """Returns when the exporter has sent the spans of a request, or has failed."""
    provider = TracerProvider(resource=Resource({"service.name": "checkout", "host.id": "m1"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("GET /checkout", kind=SpanKind.SERVER) as span:
        with tracer.start_as_current_span("render"):
            pass
        span.set_status(StatusCode.ERROR)
    provider.shutdown()


def _rows(spans: SpanColumns) -> list[Row]:
    texts = (spans.name.texts(), spans.operation.texts(), spans.service.texts())
    ids = ([one.tobytes() for one in column] for column in (spans.trace_id, spans.span_id, spans.parent_span_id))
    return list(map(Row, *texts, spans.status.tolist(), *ids))


def check(settings: GatewaySettings, times: int = 1) -> None:
    """That the spans of `trace_a_request` have come as often as this."""
    found = [decode_activity(message.value()) for message in messages(settings, ACTIVITY)]
    assert {batch.host_id for batch in found} == {"m1"}
    rows = Counter(row for batch in found for row in _rows(batch.spans))
    by_name = {row.name: row for row in rows}
    assert sorted(row.name for row in rows) == ["GET /checkout", "render"]
    assert set(rows.values()) == {times}
    request, child = by_name["GET /checkout"], by_name["render"]
    assert (request.operation, child.operation) == ("GET /checkout", "")
    assert (request.service, child.service) == ("checkout", "checkout")
    assert (request.status, child.status) == (StatusCode.ERROR.value, StatusCode.UNSET.value)
    assert (child.trace_id, child.parent_span_id) == (request.trace_id, request.span_id)


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip, Compression.Deflate])
def test_spans_come_over_http(ports: Ports, settings: GatewaySettings, compression: Compression) -> None:
    trace_a_request(HttpExporter(f"http://{ports.http}/v1/traces", compression=compression, timeout=PATIENCE_S))
    check(settings)


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_spans_come_over_grpc(ports: Ports, settings: GatewaySettings, compression: grpc.Compression) -> None:
    trace_a_request(GrpcExporter(ports.grpc, insecure=True, compression=compression, timeout=PATIENCE_S))
    check(settings)
