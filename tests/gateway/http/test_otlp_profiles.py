"""POST /v1development/profiles over the in-process broker."""

import gzip
import time
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceResponse

from gateway.http.app import create_app
from gateway.publisher import Publisher
from gateway.settings import GatewaySettings
from icestream.messages.raw import decode_raw
from icestream.settings import KafkaSettings
from icestream.topics import RAW
from tests.gateway.otlp import Otlp
from tests.pipeline.reading import messages
from tests.pipeline.running import free_port

PATH = "/v1development/profiles"
PROTOBUF = {"content-type": "application/x-protobuf"}


def service(name: str) -> Otlp:
    made = Otlp()
    made.resource_attributes({"service.name": name})
    made.profile.time_unix_nano = time.time_ns()
    made.profile.samples.add(stack_index=made.stack(made.location("jvm", [("run", "A.java", 3)])), values=[4])
    return made


def push(http: TestClient, body: bytes, **headers: str) -> Response:
    return http.post(PATH, content=body, headers=PROTOBUF | headers)


@pytest.fixture
def settings(in_process_broker: KafkaSettings) -> GatewaySettings:
    return GatewaySettings(kafka=in_process_broker.kafka)


@pytest.fixture
def http(settings: GatewaySettings) -> Iterator[TestClient]:
    publisher = Publisher(settings)
    with TestClient(create_app(settings, publisher), raise_server_exceptions=False) as http:
        yield http
    publisher.close()


def test_profiles_are_taken_and_what_cannot_be_is_told(http: TestClient, settings: GatewaySettings) -> None:
    made = service("checkout")
    bad = made.add_profile(("samples", "count"), ("cpu", "nanoseconds"), 1)
    bad.samples.add(stack_index=1, values=[-4])
    answer = push(http, gzip.compress(made.data.SerializeToString()), **{"content-encoding": "gzip"})
    assert answer.status_code == 200, answer.content
    assert answer.headers["content-type"] == "application/x-protobuf"
    partial = ExportProfilesServiceResponse.FromString(answer.content).partial_success
    assert partial.rejected_profiles == 1
    assert "negative" in partial.error_message
    (batch,) = (decode_raw(message.value()) for message in messages(settings, RAW))
    assert batch.series == [(("service", "checkout"),)]

    again = push(http, service("again").data.SerializeToString())
    assert not ExportProfilesServiceResponse.FromString(again.content).HasField("partial_success")
    empty = http.post(PATH, content=b"{}", headers={"content-type": "application/json"})
    assert (empty.status_code, empty.json()) == (200, {})


def test_refusals_are_statuses_of_grpc(http: TestClient, settings: GatewaySettings) -> None:
    answer = push(http, b"\xff" * 10)
    assert (answer.status_code, answer.content[:2]) == (400, b"\x08\x03")
    answer = http.post(PATH, content=b"{", headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (400, 3)
    assert http.post(PATH, content=b"", headers={"content-type": "text/plain"}).status_code == 415
    assert list(messages(settings, RAW)) == []


def test_without_kafka_the_sender_shall_retry() -> None:
    settings = GatewaySettings(kafka=f"127.0.0.1:{free_port()}", gateway_ack_s=0.3)
    publisher = Publisher(settings)
    with TestClient(create_app(settings, publisher)) as http:
        answer = push(http, service("away").data.SerializeToString())
    publisher.close()
    assert (answer.status_code, answer.content[:2]) == (503, b"\x08\x0e")
    assert answer.headers["retry-after"]
