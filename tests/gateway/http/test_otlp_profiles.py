"""POST /v1development/profiles over the in-process broker."""

import gzip
import time

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceResponse
from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData

from gateway import otlp_intake
from gateway.settings import GatewaySettings
from icestream.messages.checks import MAX_LABELS
from tests.gateway.otlp import Otlp
from tests.gateway.served import Gateway, serve
from tests.ports import free_port

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


def test_profiles_are_taken_and_what_cannot_be_is_told(gateway: Gateway) -> None:
    http, made = gateway.http, service("checkout")
    bad = made.add_profile(("samples", "count"), ("cpu", "nanoseconds"), 1)
    bad.samples.add(stack_index=1, values=[-4])
    answer = push(http, gzip.compress(made.data.SerializeToString()), **{"content-encoding": "gzip"})
    assert answer.status_code == 200, answer.content
    assert answer.headers["content-type"] == "application/x-protobuf"
    partial = ExportProfilesServiceResponse.FromString(answer.content).partial_success
    assert partial.rejected_profiles == 1
    assert "negative" in partial.error_message
    (batch,) = gateway.batches()
    assert batch.series == [(("service", "checkout"),)]

    again = push(http, service("again").data.SerializeToString())
    assert not ExportProfilesServiceResponse.FromString(again.content).HasField("partial_success")
    empty = http.post(PATH, content=b"{}", headers={"content-type": "application/json"})
    assert (empty.status_code, empty.json()) == (200, {})


def test_labels_may_be_parameters_of_the_address(gateway: Gateway) -> None:
    """Pyroscope's Java agent sends OTLP without any attribute of a resource."""
    made = Otlp()
    made.profile.time_unix_nano = time.time_ns()
    made.profile.samples.add(stack_index=made.stack(made.location("jvm", [("run", "A.java", 3)])), values=[4])
    assert push(gateway.http, made.data.SerializeToString()).status_code == 200
    body = made.data.SerializeToString()
    for parameters in ({"service": "shop.java", "region": "eu"}, {"service.name": "by-attribute"}):
        answer = gateway.http.post(PATH, params=parameters, content=body, headers=PROTOBUF)
        assert (answer.status_code, answer.content) == (200, b"")
    assert sorted(batch.series for batch in gateway.batches()) == [
        [(("region", "eu"), ("service", "shop.java"))],
        [(("service", "by-attribute"),)],
        [(("service", "unknown_service"),)],
    ]


def test_parameters_cost_nothing_where_there_are_no_profiles(gateway: Gateway) -> None:
    data = ProfilesData()
    for _ in range(10_000):
        data.resource_profiles.add()
    parsed: list[ProfilesData] = []

    def parse(body: bytes) -> ProfilesData:
        parsed.append(ProfilesData.FromString(body))
        return parsed[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(otlp_intake, "parse_profiles", parse)
        answer = gateway.http.post(PATH, params={"a": "b"}, content=data.SerializeToString(), headers=PROTOBUF)
    assert (answer.status_code, answer.content) == (200, b"")
    assert parsed == [data]


def test_more_parameters_than_there_may_be_labels_are_refused(gateway: Gateway) -> None:
    for count, status in ((MAX_LABELS, 200), (MAX_LABELS + 1, 400)):
        answer = gateway.http.post(f"{PATH}?{'&'.join(['a'] * count)}", content=b"", headers=PROTOBUF)
        assert answer.status_code == status
    assert f"at most {MAX_LABELS} parameters".encode() in answer.content


def test_refusals_are_statuses_of_grpc(gateway: Gateway) -> None:
    http = gateway.http
    answer = push(http, b"\xff" * 10)
    assert (answer.status_code, answer.content[:2]) == (400, b"\x08\x03")
    answer = http.post(PATH, content=b"{", headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (400, 3)
    assert http.post(PATH, content=b"", headers={"content-type": "text/plain"}).status_code == 415
    assert gateway.batches() == []


def test_without_kafka_the_sender_shall_retry() -> None:
    settings = GatewaySettings(kafka=f"127.0.0.1:{free_port()}", gateway_ack_s=0.3)
    for away in serve(settings):
        answer = push(away.http, service("away").data.SerializeToString())
    assert (answer.status_code, answer.content[:2]) == (503, b"\x08\x0e")
    assert answer.headers["retry-after"]


@pytest.mark.parametrize(
    "revisions", [["2"], ["01"], ["+1"], ["1.0"], ["0"], [""], ["1, 1"], ["x"], ["1", "1"], ["1", "2"]]
)
@pytest.mark.parametrize("body", [b"\xff", service("checkout").data.SerializeToString()], ids=["none", "profile"])
def test_another_revision_is_refused_whatever_the_body_is(gateway: Gateway, revisions: list[str], body: bytes) -> None:
    headers = [*PROTOBUF.items(), *[("OTLP-Profiles-Development-Version", revision) for revision in revisions]]
    answer = gateway.http.post(PATH, content=body, headers=headers)
    assert (answer.status_code, answer.content[:2]) == (400, b"\x08\x03")
    assert b"expected 1, the revision" in answer.content
    assert gateway.batches() == []


def test_our_revision_is_taken(gateway: Gateway) -> None:
    body = service("checkout").data.SerializeToString()
    assert push(gateway.http, body, **{"OTLP-Profiles-Development-Version": "1"}).status_code == 200
    in_json = {"content-type": "application/json", "otlp-profiles-development-version": "2"}
    answer = gateway.http.post(PATH, content=b"{}", headers=in_json)
    assert (answer.status_code, answer.json()["code"]) == (400, 3)
