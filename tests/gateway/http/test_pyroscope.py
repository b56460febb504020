"""Profiles as Pyroscope's SDKs and Alloy send them, and as Parca's HTTP API takes them."""

import base64
import gzip
import json
import subprocess
import sys
import time
from collections.abc import Sequence

import pytest
from httpx2 import Response
from prometheus_client import REGISTRY

from gateway.http.app import create_app
from gateway.publisher import BatchPublisher
from icestream.http.server import Server
from icestream.pprof.profile_pb2 import Profile
from icestream.pyroscope.push_pb2 import PushRequest
from tests.gateway.profiles import simple
from tests.gateway.pushing import PYTHON
from tests.gateway.served import Gateway, code
from tests.waiting import PATIENCE_S

PUSH, PARCA = "/push.v1.PusherService/Push", "/api/profiles/writeraw"
PROTO, JSON = {"content-type": "application/proto"}, {"content-type": "application/json"}


def profile(**labels: str) -> Profile:
    made = simple({("main", "work"): (3, 30_000_000)}, labels=labels)
    made.time_nanos = time.time_ns() - 10 * 10**9
    return made


def request_of(*profiles: bytes, name: str = "process_cpu") -> PushRequest:
    request = PushRequest()
    series = request.series.add()
    for key, value in (("__name__", name), ("service_name", "checkout"), ("__session_id__", "1"), ("region", "eu")):
        series.labels.add(name=key, value=value)
    for number, data in enumerate(profiles):
        series.samples.add(raw_profile=data, ID=f"{number}")
    return request


def test_the_python_sdk_pushes_a_program(gateway: Gateway) -> None:
    publisher = BatchPublisher(gateway.settings)
    server = Server(create_app(gateway.settings, publisher), "127.0.0.1:0")
    server.start()
    program = [sys.executable, "-c", PYTHON, f"http://{server.address}", "0.5"]
    subprocess.run(program, check=True, timeout=PATIENCE_S)
    server.close()
    publisher.close()
    batches = gateway.batches()
    labels = [dict(labels) for batch in batches for labels in batch.series]
    # Samples of other code may be there, too.
    assert any(
        {"service": "sdk.python", "region": "eu", "endpoint": "checkout"}.items() <= one.items() for one in labels
    )
    assert {batch.profile_type for batch in batches} == {"process_cpu:cpu:nanoseconds:cpu:nanoseconds"}
    assert "busy_function" in {text for batch in batches for text in batch.strings}
    # How many samples there are depends on when the sampler gets a CPU.
    assert all(int(value) % 10**7 == 0 for batch in batches for value in batch.sample_value)
    assert sum(int(batch.sample_value.sum()) for batch in batches) > 0


def test_a_push_in_protobuf_and_in_json(gateway: Gateway) -> None:
    packed = gzip.compress(profile(endpoint="/pay").SerializeToString())
    body = request_of(packed).SerializeToString()
    answer = gateway.http.post(PUSH, content=gzip.compress(body), headers=PROTO | {"content-encoding": "gzip"})
    assert (answer.status_code, answer.content) == (200, b"")
    as_json = {
        "series": [
            {
                "labels": [{"name": "__name__", "value": "mutex"}, {"name": "service_name", "value": "cart"}],
                "samples": [{"rawProfile": base64.b64encode(packed).decode(), "ID": "1"}],
            }
        ]
    }
    answer = gateway.http.post(PUSH, content=json.dumps(as_json), headers=JSON)
    assert (answer.status_code, answer.json()) == (200, {})
    first, second = sorted(gateway.batches(), key=lambda batch: batch.host_id, reverse=True)
    assert first.series == [(("endpoint", "/pay"), ("region", "eu"), ("service", "checkout"))]
    assert first.profile_type == "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
    assert (second.host_id, second.profile_type) == ("cart", "mutex:cpu:nanoseconds:cpu:nanoseconds")


def test_the_good_profiles_of_a_push_are_taken_and_the_bad_ones_told(gateway: Gateway) -> None:
    negative = simple({("main",): (-1, -1)}).SerializeToString()
    request = request_of(b"\x1f\x8b no gzip", profile().SerializeToString(), b"\xff\xff", negative)
    answer = gateway.http.post(PUSH, content=request.SerializeToString(), headers=PROTO)
    assert answer.status_code == 400
    assert answer.json()["code"] == "invalid_argument"
    assert answer.json()["message"].startswith("3 of 4 profiles were refused")
    assert len(gateway.batches()) == 1


def dropped(what: str) -> float:
    return REGISTRY.get_sample_value("icestream_gateway_dropped_total", {"what": what}) or 0


def test_what_was_dropped_of_a_push_is_told_and_counted(gateway: Gateway) -> None:
    # What was dropped of the labels of a series is told once, not for each of its profiles.
    request = request_of(b"\xff", profile(endpoint="x" * 201).SerializeToString(), profile().SerializeToString())
    request.series[0].labels.add(name="n" * 101, value="v")
    before = [dropped(what) for what in ("label_values", "label_names", "profiles")]
    answer = gateway.http.post(PUSH, content=request.SerializeToString(), headers=PROTO)
    assert answer.status_code == 400  # of one profile
    assert json.loads(answer.headers["X-Icestream-Dropped"]) == {"label_values": 1, "label_names": 1}
    after = [dropped(what) for what in ("label_values", "label_names", "profiles")]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1, 1]
    raw = base64.b64encode(profile(endpoint="x" * 201).SerializeToString()).decode()
    labels = {"labels": [{"name": f"n{number:03}", "value": "v"} for number in range(257)]}
    answer = gateway.http.post(PARCA, json={"series": [{"labels": labels, "samples": [{"rawProfile": raw}]}]})
    assert answer.status_code == 200
    # The labels of the request, and those of the only sample: without its own one, and with it.
    assert json.loads(answer.headers["X-Icestream-Dropped"]) == {"excess_labels": 3, "label_values": 1}


def test_what_was_dropped_of_the_address_is_told(gateway: Gateway) -> None:
    address = {"name": f"shop{{region={'x' * 201}}}", "format": "folded"}
    answer = gateway.http.post("/ingest", params=address, content=f"main;{'f' * 1025} 3\n".encode())
    assert answer.json() == {"samples": 1, "dropped": {"label_values": 1, "names": 1}}
    answer = gateway.http.post(
        "/api/v1/ingest/pprof", params={"service": "s" * 201}, content=profile().SerializeToString()
    )
    assert answer.json() == {"samples": 1, "dropped": {"label_values": 1}}


def test_pushes_that_are_none_are_refused(gateway: Gateway) -> None:
    for body, headers in ((b"\xff", PROTO), (b"{", JSON), (b'{"series": 5}', JSON), (b"[" * 99_999, JSON)):
        answer = gateway.http.post(PUSH, content=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_argument")
    assert gateway.http.post(PUSH, content=b"", headers={"content-type": "application/grpc"}).status_code == 415


def test_every_error_of_the_service_is_one_of_connect(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(answer: Response) -> tuple[int, str, str]:
        body = answer.json()
        assert set(body) == {"code", "message"}
        return answer.status_code, body["code"], body["message"]

    unknown = "/push.v1.PusherService/Pull"
    assert told(gateway.http.post(unknown)) == (404, "unimplemented", f"POST {unknown}: Not Found")
    wrong = gateway.http.get(PUSH)
    assert told(wrong) == (405, "unimplemented", f"GET {PUSH}: Method Not Allowed")
    assert wrong.headers["Allow"] == "POST"
    monkeypatch.setattr("gateway.http.routes.pyroscope_push.parse_push", lambda *given: 1 // 0)
    failed = gateway.http.post(PUSH, content=b"", headers=PROTO)
    assert told(failed) == (500, "internal", "an unexpected error")
    assert code(gateway.http.post("/push.v1.Others/Push")) == (404, "not_found")


def test_what_is_too_large_is_not_sent_again(gateway: Gateway) -> None:
    bomb = request_of(*[gzip.compress(bytes(1_000_000))] * 3).SerializeToString()
    for body in (bomb, bytes(2_000_001)):
        answer = gateway.http.post(PUSH, content=body, headers=PROTO)
        assert (answer.status_code, answer.json()["code"]) == (413, "invalid_argument")


def test_parca_writes_raw_profiles(gateway: Gateway) -> None:
    raw = base64.b64encode(gzip.compress(profile().SerializeToString())).decode()
    labels = {"labels": [{"name": "__name__", "value": "process_cpu"}, {"name": "service", "value": "parca"}]}
    body = {"series": [{"labels": labels, "samples": [{"rawProfile": raw}]}], "normalized": True}
    assert gateway.http.post(PARCA, json=body).status_code == 200
    assert gateway.http.post(PARCA, content=b'{"series": [7]}').status_code == 400
    assert [batch.series for batch in gateway.batches()] == [[(("service", "parca"),)]]


def test_the_go_sdk_sends_a_form_with_a_profile(gateway: Gateway) -> None:
    """As github.com/grafana/pyroscope-go, upstream/remote, writes it."""
    types = [("contentions", "count"), ("delay", "nanoseconds")]
    made = simple({("main", "lock"): (2, 500)}, types=types, period_type=("contentions", "count"))
    made.time_nanos = time.time_ns()
    config = {"contentions": {"units": "lock_samples", "display-name": "mutex_count", "cumulative": False}}
    files = {
        "profile": ("profile.pprof", gzip.compress(made.SerializeToString())),
        "sample_type_config": ("sample_type_config.json", json.dumps(config).encode()),
    }
    now = time.time_ns()
    name = {"name": "shop.go{region=eu,version=v1.2=x}", "from": str(now - 10**10), "until": str(now)}
    answer = gateway.http.post("/ingest", params=name | {"spyName": "gospy", "sampleRate": "100"}, files=files)
    assert answer.status_code == 200, answer.text
    batches = gateway.batches()
    assert {batch.profile_type.split(":")[0] for batch in batches} == {"mutex"}
    assert batches[0].series == [(("region", "eu"), ("service", "shop.go"), ("version", "v1.2=x"))]
    old = gateway.http.post("/ingest", params=name, files=files | {"prev_profile": ("prev", b"x")})
    assert code(old) == (415, "unsupported")


def test_the_parts_of_a_form_are_bounded_together_and_others_are_not_unpacked(gateway: Gateway) -> None:
    large = gzip.compress(b"x" * 1_500_000)  # the gateway unpacks 2 MB
    files = {"profile": ("p", large), "sample_type_config": ("s", large)}
    answer = gateway.http.post("/ingest", params={"name": "shop"}, files=files)
    assert code(answer) == (413, "too_large")
    unknown = {"profile": ("p", profile().SerializeToString()), "more": ("m", gzip.compress(bytes(3_000_000)))}
    assert gateway.http.post("/ingest", params={"name": "shop"}, files=unknown).status_code == 200


SPEEDSCOPE = {
    "shared": {"frames": [{"name": "main"}, {"name": "work", "file": "a.rb", "line": 3}]},
    "profiles": [{"type": "sampled", "unit": "seconds", "samples": [[0, 1], [0]], "weights": [0.25, 0.5]}],
}


EVENTS = [
    ("O", 0, 10),
    ("O", 1, 12),
    ("C", 1, 15),
    ("O", 1, 16),
    ("C", 1, 17),
    ("C", 0, 20),
    ("O", 1, 30),
    ("C", 1, 31),
]


def evented(events: Sequence[tuple[str, int, float]], unit: str = "milliseconds") -> bytes:
    made = [{"type": kind, "frame": frame, "at": at} for kind, frame, at in events]
    profile = {"type": "evented", "unit": unit, "startValue": 0, "endValue": 40, "events": made}
    return json.dumps({"shared": SPEEDSCOPE["shared"], "profiles": [profile]}).encode()


@pytest.mark.parametrize(
    ("given", "body", "profile_type", "values"),
    [
        ({"format": "folded"}, b"main;work 3\nmain 2\n", "process_cpu:cpu:nanoseconds", [30_000_000, 20_000_000]),
        ({"format": "lines"}, b"main;work\nmain;work\n", "process_cpu:cpu:nanoseconds", [10_000_000] * 2),
        ({"units": "bytes"}, b"main;a b c 7\n", "memory:alloc_space:bytes", [7]),
        ({"units": "bytes", "aggregationType": "average"}, b"main;a 7\n", "memory:inuse_space:bytes", [7]),
        ({"units": "objects", "aggregationType": "average"}, b"main;a 7\n", "memory:inuse_objects:count", [7]),
        ({"units": "objects", "aggregationType": "sum"}, b"main;a 7\n", "memory:alloc_objects:count", [7]),
        ({"units": "samples", "aggregationType": "sum"}, b"main;a 7\n", "process_cpu:cpu:nanoseconds", [70_000_000]),
        ({"format": "speedscope"}, json.dumps(SPEEDSCOPE).encode(), "process_cpu:cpu", [25 * 10**7, 5 * 10**8]),
        (
            {"format": "speedscope"}, evented(EVENTS), "process_cpu:cpu",
            [6_000_000, 4_000_000, 1_000_000],
        ),
        ({"format": "speedscope"}, evented([("O", 0, 10)]), "process_cpu:cpu", [30_000_000]),
        ({"format": "speedscope", "units": "bytes"}, evented([("O", 0, 10)], "none"), "memory:alloc_space", [30]),
        (
            {"format": "speedscope", "units": "bytes", "aggregationType": "average"}, evented([("O", 0, 10)], "bytes"),
            "memory:inuse_space", [30],
        ),
    ],
)  # fmt: skip
def test_stacks_as_text(
    gateway: Gateway, given: dict[str, str], body: bytes, profile_type: str, values: list[int]
) -> None:
    now = int(time.time())
    name = {"name": "shop.rb", "from": str(now - 10), "until": str(now)}
    for _ in range(2):  # sent again
        assert gateway.http.post("/ingest", params=name | given, content=body).status_code == 200
    batch, again = gateway.batches()
    assert batch.profile_type.startswith(profile_type)
    assert batch.sample_value.tolist() == values
    assert batch.start_unix_nano == (now - 10) * 10**9
    assert batch.id == again.id
    assert batch.strings[batch.location_function[batch.stack_frames[batch.stack_depth[0] - 1]]] == "main"


@pytest.mark.parametrize(
    "events",
    [
        [("O", 0, 5), ("C", 1, 6)],
        [("C", 0, 5)],
        [("O", 0, 5), ("C", 0, 4)],
        [("X", 0, 5)],
        [("O", 9, 5)],
        [("O", -1, 5)],
        [("O", 0, float("nan"))],
        [("O", 0, at) for at in range(10_000)],
    ],
    ids=["crossed", "not open", "back in time", "kind", "no frame", "negative frame", "no time", "deep"],
)
def test_events_that_contradict_each_other_are_refused(gateway: Gateway, events: list[tuple[str, int, float]]) -> None:
    answer = gateway.http.post("/ingest", params={"name": "s", "format": "speedscope"}, content=evented(events))
    assert code(answer) == (400, "bad_profile")


def test_what_ingest_cannot_read_is_refused_by_name(gateway: Gateway) -> None:
    def ingest(body: bytes, **given: str) -> tuple[int, str]:
        return code(gateway.http.post("/ingest", params={"name": "shop"} | given, content=body))

    jfr = {"jfr": ("jfr", b"FLR"), "labels": ("labels", b"")}  # as the Java agent sends it
    answer = gateway.http.post("/ingest", params={"name": "shop", "format": "jfr"}, files=jfr)
    assert code(answer) == (415, "unsupported")
    assert "PYROSCOPE_FORMAT=otlp" in answer.json()["error"]["hint"]
    assert ingest(b"main x\n", format="folded") == (400, "bad_profile")
    assert ingest(b"main 99999999999999999999\n", format="folded") == (400, "bad_profile")
    assert ingest(b"main 999999999999999999\n", format="folded") == (400, "bad_profile")
    assert ingest(b"main 1", format="folded", aggregationType="median") == (400, "bad_labels")
    assert ingest(b"{}", format="speedscope") == (400, "bad_profile")
    for rate in ("0", "00000010000000000000", "0000000001" + "9" * 5000):
        assert ingest(b"main 1", format="folded", sampleRate=rate) == (400, "bad_labels")
    assert ingest(b"main 1", **{"from": "soon"}) == (400, "bad_labels")
    assert ingest(b"main 1", **{"from": "5"}) == (400, "bad_profile")
    assert ingest(b"main 1", **{"from": "99999999999"}) == (400, "bad_profile")
    form = {"content-type": "multipart/form-data; boundary=x"}
    for body in (b"", b"--x\r\n", b"--x\r\n\r\nabc\r\n--x--" * 50):
        answer = gateway.http.post("/ingest", params={"name": "shop"}, content=body, headers=form)
        assert answer.status_code == 400
    assert gateway.batches() == []
