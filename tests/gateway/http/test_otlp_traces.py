"""POST /v1/traces over the in-process broker, and the spans in tables and answers of the API."""

import gzip
import time
from collections.abc import Iterator

import pytest
from clickhouse_connect.driver.client import Client
from fastapi.testclient import TestClient
from google.protobuf import json_format
from httpx2 import Response
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from gateway.http.app import create_app
from gateway.publisher import BatchPublisher
from gateway.settings import GatewaySettings
from icestream.messages.activity import ActivityColumns, decode_activity
from icestream.messages.message_id import MessageId
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY
from sinks.runner.ranges import InFlight, MessageRange
from sinks.tables.decode import decode
from streams.operators.symbolize import Symbolizer
from streams.partition.process import Operators, Processor
from tests.gateway.spans import CHILD, ROOT, TRACE, resource_spans, span, traces
from tests.gateway.stored import Store
from tests.pipeline.reading import messages
from tests.ports import free_port
from tests.waiting import PATIENCE_S

PATH = "/v1/traces"
PROTOBUF = {"content-type": "application/x-protobuf"}


def push(http: TestClient, body: bytes, **headers: str) -> Response:
    return http.post(PATH, content=body, headers=PROTOBUF | headers)


def two_spans() -> TracesData:
    now = time.time_ns() - 10**9
    return traces(span(now), span(now, CHILD, ROOT, name="render", end_time_unix_nano=now + 5 * 10**7))


@pytest.fixture
def settings(in_process_broker: KafkaSettings) -> GatewaySettings:
    return GatewaySettings(kafka=in_process_broker.kafka, gateway_ack_s=PATIENCE_S)


@pytest.fixture
def http(settings: GatewaySettings) -> Iterator[TestClient]:
    publisher = BatchPublisher(settings)
    with TestClient(create_app(settings, publisher), "http://localhost", raise_server_exceptions=False) as http:
        yield http
    publisher.close()


def published(settings: GatewaySettings, host_id: str) -> list[ActivityColumns]:
    found = [decode_activity(message.value()) for message in messages(settings, ACTIVITY)]
    return [batch for batch in found if batch.host_id == host_id]


@pytest.mark.parametrize("way", ["plain", "gzip", "json"])
def test_what_is_acknowledged_is_in_kafka(http: TestClient, settings: GatewaySettings, way: str) -> None:
    data = two_spans()
    data.resource_spans.add().CopyFrom(resource_spans(data.resource_spans[0].scope_spans[0].spans, host_id=way))
    if way == "json":
        given = json_format.MessageToDict(data)
        for one in (one for rs in given["resourceSpans"] for scope in rs["scopeSpans"] for one in scope["spans"]):
            one |= {"traceId": TRACE.hex(), "spanId": (CHILD if "parentSpanId" in one else ROOT).hex()}
            if "parentSpanId" in one:
                one["parentSpanId"] = ROOT.hex()
        answer = http.post(PATH, json=given)
    else:
        body = data.SerializeToString()
        answer = push(
            http,
            gzip.compress(body) if way == "gzip" else body,
            **{"content-encoding": "gzip"} if way == "gzip" else {},
        )
    assert answer.status_code == 200, answer.text
    (batch,) = published(settings, way)
    assert batch.spans.name.texts() == ["GET /checkout", "render"]
    assert batch.spans.span_id.tobytes() == ROOT + CHILD
    assert batch.spans.parent_span_id.tobytes() == bytes(8) + ROOT


def test_spans_that_cannot_be_taken_are_counted_in_the_answer(http: TestClient) -> None:
    data = two_spans()
    data.resource_spans[0].scope_spans[0].spans[1].trace_id = bytes(16)
    answer = push(http, data.SerializeToString())
    assert answer.status_code == 200
    told = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert (told.rejected_spans, told.error_message) == (1, "1 spans without valid IDs")


def test_what_is_no_trace_gets_a_status_and_no_kafka_means_later(http: TestClient) -> None:
    assert push(http, b"\xff\xff").status_code == 400
    assert http.post(PATH, json={"resourceSpans": 1}).status_code == 400
    assert push(http, b"", **{"content-type": "text/plain"}).status_code == 415
    away = GatewaySettings(kafka=f"127.0.0.1:{free_port()}", gateway_ack_s=0.2)
    publisher = BatchPublisher(away)
    with TestClient(create_app(away, publisher), "http://localhost") as nowhere:
        answer = push(nowhere, two_spans().SerializeToString())
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
    publisher.close()


def test_spans_are_stored_once_and_name_the_request_whose_cpu_a_collector_saw(
    http: TestClient, settings: GatewaySettings, store: Store, tables: Client
) -> None:
    body = traces(*two_spans().resource_spans[0].scope_spans[0].spans, host_id="stored").SerializeToString()
    assert push(http, body).status_code == push(http, body).status_code == 200
    values = [m.value() for m in messages(settings, ACTIVITY) if decode_activity(m.value()).host_id == "stored"]
    assert len(values) == 2
    processor = Processor(Operators(symbolize=Symbolizer(None).names))
    for offset, value in enumerate(values):
        place = MessageId("C", ACTIVITY, 0, offset)
        outputs = processor.activity(value, place)
        assert (outputs.stacks, outputs.samples) == ([], [])
        ranged = MessageRange("C", ACTIVITY, 0, InFlight.new(offset, offset), [decode(value, place)], False)
        store.write(ranged)
    assert not processor.partition(0).runs  # spans of a gateway take no memory of a worker
    rows = tables.query(
        "SELECT name, service, hex(parent_span_id), toUnixTimestamp64Nano(end_time) - toUnixTimestamp64Nano(start_time)"
        f" FROM spans FINAL WHERE host_id = 'stored' AND trace_id = unhex('{TRACE.hex()}') ORDER BY name"
    ).result_rows
    assert [tuple(row) for row in rows] == [
        ("GET /checkout", "shop", "00" * 8, 10**8), ("render", "shop", ROOT.hex().upper(), 5 * 10**7),
    ]  # fmt: skip
    count = tables.query("SELECT count() FROM batches WHERE host_id = 'stored'").result_rows
    assert count[0][0] == 1
