"""Spans that the OTLP exporters of Datadog's tracers send name the operation of the samples that have its contexts."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from gateway.http.app import create_app
from gateway.labels import to_labels
from gateway.publisher import BatchPublisher
from gateway.readers.pprof import Source, read_pprof
from gateway.settings import GatewaySettings
from icestream.messages.activity import decode_activity
from icestream.messages.message_id import MessageId
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY
from sinks.runner.ranges import InFlight, MessageRange
from sinks.tables.decode import decode
from tests.collector.runtimes.v8.nodes import TRACED_BY_DATADOG, install_dd_trace
from tests.gateway.profiles import simple
from tests.gateway.stored import Store
from tests.pipeline.reading import messages
from tests.waiting import PATIENCE_S

OF_PYTHON = """
from ddtrace.trace import tracer

with tracer.trace("web.request", resource="GET /checkout", span_type="web") as entry:
    with tracer.trace("template"), tracer.trace("render") as inner:
        print(f"{entry.trace_id:032x} {entry.span_id:016x} {inner.span_id:016x}")
tracer.shutdown()
"""
OF_NODE = """
const tracer = require('dd-trace').init();
tracer.trace('web.request', {resource: 'GET /checkout', type: 'web'}, (entry) =>
  tracer.trace('template', () => tracer.trace('render', (inner) =>
    console.log(entry.context().toTraceId(true), entry.context().toSpanId(true), inner.context().toSpanId(true)))));
"""


class Collector(BaseHTTPRequestHandler):
    """Keeps what is posted to it."""

    bodies: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"]))
        self.bodies.append((self.headers["content-type"], content))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def http(in_process_broker: KafkaSettings) -> Iterator[TestClient]:
    settings = GatewaySettings(kafka=in_process_broker.kafka, gateway_ack_s=PATIENCE_S)
    publisher = BatchPublisher(settings)
    with TestClient(create_app(settings, publisher), base_url="http://localhost") as http:
        yield http
    publisher.close()


def traced(service: str, command: list[str], folder: Path) -> tuple[list[str], list[tuple[str, bytes]]]:
    """Runs a program. Returns its trace ID, the IDs of its entry and innermost span, and what it exported."""
    bodies: list[tuple[str, bytes]] = []
    server = HTTPServer(("127.0.0.1", 0), type("Heard", (Collector,), {"bodies": bodies}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    more = {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://127.0.0.1:{server.server_port}/v1/traces",
        "DD_SERVICE": service,
        "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
        "DD_REMOTE_CONFIGURATION_ENABLED": "false",
    }
    try:
        run = subprocess.run(command, cwd=folder, env=os.environ | more, stdout=subprocess.PIPE, text=True, check=True)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    return run.stdout.splitlines()[-1].split(), bodies


@pytest.mark.soak  # CI has the spans of OpenTelemetry's exporter, and ddtrace's contexts
@pytest.mark.parametrize(
    "language",
    ["python", pytest.param("node", marks=pytest.mark.skipif(not TRACED_BY_DATADOG, reason="needs `make nodes`"))],
)
def test_a_program_that_only_datadogs_tracer_traces_has_operations(
    http: TestClient, in_process_broker: KafkaSettings, store: Store, tmp_path: Path, language: str
) -> None:
    service, command = f"{language}-shop", [sys.executable, "-c", OF_PYTHON]
    if language == "node":
        install_dd_trace(tmp_path)
        command = [TRACED_BY_DATADOG[-1].path, "-e", OF_NODE]
    (trace, entry, inner), bodies = traced(service, command, tmp_path)
    assert bodies
    for kind, content in bodies:
        answer = http.post("/v1/traces", content=content, headers={"content-type": kind})
        assert answer.status_code == 200, answer.text
    settings = GatewaySettings(kafka=in_process_broker.kafka)
    values = [message.value() for message in messages(settings, ACTIVITY)]
    ours = [value for value in values if service in decode_activity(value).spans.service.texts()]
    for offset, value in enumerate(ours):
        place = MessageId(service, ACTIVITY, 0, offset)
        store.write(MessageRange(service, ACTIVITY, 0, InFlight.new(offset, offset), [decode(value, place)], False))
    for span, count in ((entry, 2), (inner, 3), ("ab" * 8, 4)):
        profile = simple({("main",): (count, count * 10_000_000)}, labels={"trace_id": trace, "span_id": span})
        profile.time_nanos = time.time_ns()
        store.take(read_pprof(profile.SerializeToString(), Source(to_labels([("service", service)])), 10))
    selector = f'{{service="{service}"}}'
    answer = store.json("/api/v1/operations", selector=selector)
    assert [(row["operation"], row["requests"], row["samples"]) for row in answer["operations"]] == [
        ("GET /checkout", 1, 5)
    ]
    assert [row["samples"] for row in answer["unattributed"]] == [4]
    assert store.json("/api/v1/merge", selector=f'{{service="{service}", span_name="render"}}')["samples"] == 3
