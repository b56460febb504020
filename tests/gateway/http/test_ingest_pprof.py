"""POST /api/v1/ingest/pprof over the in-process broker: what is acknowledged is in Kafka, and all else is refused."""

import gzip
import time
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from prometheus_client import REGISTRY

from gateway.settings import GatewaySettings
from icestream.messages.raw import decode_raw
from icestream.pprof.profile_pb2 import Profile
from icestream.topics import RAW
from tests.gateway.profiles import simple
from tests.gateway.served import Gateway, code, serve
from tests.pipeline.reading import messages
from tests.ports import free_port

PATH = "/api/v1/ingest/pprof"


@pytest.fixture
def http(gateway: Gateway) -> TestClient:
    return gateway.http


@pytest.fixture
def settings(gateway: Gateway) -> GatewaySettings:
    return gateway.settings


def profile() -> Profile:
    made = simple({("main", "work"): (3, 30_000_000), ("main",): (1, 10_000_000)})
    made.time_nanos = time.time_ns() - 10 * 10**9
    return made


def push(http: TestClient, body: bytes, headers: dict[str, str] | None = None, **labels: str) -> Response:
    return http.post(PATH, params={"service": "checkout", **labels}, content=body, headers=headers or {})


def test_what_is_acknowledged_is_in_kafka(http: TestClient, settings: GatewaySettings) -> None:
    plain = profile().SerializeToString()
    packed = gzip.compress(plain)
    for body, headers in ((plain, {}), (packed, {}), (gzip.compress(packed), {"content-encoding": "gzip"})):
        answer = push(http, body, headers, namespace="prod")
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"samples": 2, "dropped": {}}
    batches = [decode_raw(message.value()) for message in messages(settings, RAW)]
    assert len(batches) == 3
    assert len({batch.id.collector for batch in batches}) == 1  # one batch that came three times
    assert batches[0].series == [(("namespace", "prod"), ("service", "checkout"))]
    assert batches[0].profile_type == "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
    assert batches[0].sample_value.tolist() == [30_000_000, 10_000_000]
    assert batches[0].sample_count.tolist() == [3, 1]


def test_the_labels_that_are_described_stay_if_there_are_too_many(gateway: Gateway) -> None:
    described = {"pod": "shop-7", "host": "h", "span_name": "POST /pay"}
    answer = push(gateway.http, profile().SerializeToString(), **described, **{f"a{i:03}": "v" for i in range(260)})
    assert (answer.status_code, answer.json()["dropped"]) == (200, {"excess_labels": 8}), answer.text
    ((labels,),) = [batch.series for batch in gateway.batches()]
    assert dict(labels).items() >= {"service": "checkout", **described}.items()
    assert [name for name, _ in labels if name.startswith("a")] == [f"a{i:03}" for i in range(252)]
    assert list(labels) == sorted(labels)


def test_the_name_of_a_profile_is_a_parameter(http: TestClient, settings: GatewaySettings) -> None:
    types = [("contentions", "count"), ("delay", "nanoseconds")]
    mutex = simple({("main",): (2, 500)}, types=types, period_type=("contentions", "count"))
    mutex.time_nanos = time.time_ns()
    assert push(http, mutex.SerializeToString(), name="mutex").status_code == 200
    assert {decode_raw(message.value()).profile_type for message in messages(settings, RAW)} == {
        "mutex:contentions:count:contentions:count",
        "mutex:delay:nanoseconds:contentions:count",
    }


def test_a_trace_of_a_whole_request_is_refused_because_it_would_be_a_label(http: TestClient) -> None:
    for name in ("trace_id", "span_id"):
        answer = push(http, profile().SerializeToString(), **{name: "4bf92f3577b34da6"})
        assert code(answer) == (400, "bad_labels")
        assert name in answer.text


def test_bodies_are_bounded_also_after_gzip(http: TestClient) -> None:
    assert code(push(http, bytes(1_000_001))) == (413, "too_large")
    bomb = gzip.compress(bytes(100_000_000))
    assert len(bomb) < 1_000_000
    assert code(push(http, bomb)) == (413, "too_large")
    assert code(push(http, gzip.compress(bomb), {"content-encoding": "gzip"})) == (413, "too_large")


def broken(**changes: Any) -> bytes:
    made = profile()
    for name, value in changes.items():
        setattr(made, name, value)
    return made.SerializeToString()


def changed(change: str) -> bytes:
    made = profile()
    if change == "unknown location":
        made.sample[0].location_id[0] = 99
    elif change == "unknown function":
        made.location[0].line[0].function_id = 99
    elif change == "unknown mapping":
        made.location[0].mapping_id = 99
    elif change == "unknown string":
        made.function[0].name = 10**6
    elif change == "negative string":
        made.function[0].name = -1
    elif change == "one value":
        del made.sample[0].value[1:]
    elif change == "negative value":
        made.sample[0].value[1] = -5
    elif change == "absurd value":
        made.sample[0].value[1] = 2**62
    elif change == "absurd count":
        made.sample[0].value[0] = 2**40
    elif change == "no types":
        del made.sample_type[:]
    return made.SerializeToString()


CHANGES = (
    *("unknown location", "unknown function", "unknown mapping", "unknown string", "negative string", "one value"),
    *("negative value", "absurd value", "absurd count", "no types"),
)


def test_malformed_and_absurd_profiles_are_refused_and_counted(http: TestClient, settings: GatewaySettings) -> None:
    before = REGISTRY.get_sample_value("icestream_gateway_refused_total", {"code": "bad_profile"}) or 0
    bodies = [changed(change) for change in CHANGES]
    bodies += [b"", b"\xff" * 100, b"not a profile", profile().SerializeToString()[:-9]]
    bodies += [broken(time_nanos=10**9), broken(time_nanos=2 * time.time_ns()), broken(duration_nanos=10**18)]
    for number, body in enumerate(bodies):
        answer = push(http, body)
        assert code(answer) == (400, "bad_profile"), (number, answer.text)
    after = REGISTRY.get_sample_value("icestream_gateway_refused_total", {"code": "bad_profile"}) or 0
    assert after - before == len(bodies)
    assert code(push(http, gzip.compress(profile().SerializeToString())[:-20])) == (400, "bad_body")
    assert code(push(http, b"", {"content-encoding": "br"})) == (415, "unsupported")
    assert code(http.post(PATH, content=profile().SerializeToString())) == (400, "bad_labels")
    assert code(http.get(PATH)) == (405, "method_not_allowed")
    assert code(http.post("/elsewhere")) == (404, "not_found")
    assert list(messages(settings, RAW)) == []


def test_a_profile_without_a_time_is_of_now_and_counts_each_time(http: TestClient, settings: GatewaySettings) -> None:
    made = profile()
    made.time_nanos = 0
    for _ in range(2):
        assert push(http, made.SerializeToString()).status_code == 200
    first, second = (decode_raw(message.value()) for message in messages(settings, RAW))
    assert first.id.collector != second.id.collector
    assert abs(first.end_unix_nano - time.time_ns()) < 60 * 10**9


def test_without_kafka_nothing_is_acknowledged() -> None:
    settings = GatewaySettings(kafka=f"127.0.0.1:{free_port()}", gateway_ack_s=0.3)
    for away in serve(settings):
        http = away.http
        answer = push(http, profile().SerializeToString())
        assert code(answer) == (503, "unavailable")
        assert int(answer.headers["retry-after"]) > 0
        assert http.get("/readyz").status_code == 503
        assert http.get("/healthz").status_code == 200


def test_it_is_ready_and_measured(http: TestClient) -> None:
    assert push(http, profile().SerializeToString()).status_code == 200
    assert http.get("/readyz").json() == {"status": "ready"}
    text = http.get("/metrics").text
    assert 'icestream_gateway_requests_total{route="/api/v1/ingest/pprof",status="200"}' in text
    assert "icestream_collector" not in text
