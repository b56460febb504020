"""A text that is no valid Unicode costs nothing but its invalid characters."""

import json
import time

import pytest
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from gateway.errors import Refused
from gateway.profile_types import COUNT
from gateway.readers import otlp_json, valid_texts
from gateway.readers.otlp import parse_profiles
from gateway.readers.otlp_spans import parse_spans, read_spans
from gateway.readers.pprof import Source
from gateway.readers.pushed import parse_push, parse_write_raw
from gateway.readers.speedscope import read_speedscope
from icestream.messages.plausible import ANY_TIME
from icestream.pyroscope.push_pb2 import PushRequest
from tests.gateway.otlp import host
from tests.gateway.spans import CHILD, span, traces

NOW = time.time_ns()
BROKEN, MENDED = b"caf\xc3", "caf\ufffd"  # cut within a character
HALF = "caf\ud83d"  # of an emoji


def test_of_otlp_profiles_in_protobuf() -> None:
    sent, expected = host(), host()
    for made, text in ((sent, "caf_"), (expected, MENDED)):
        made.resource_attributes({"user": text})
        made.resource_attributes({"user.id": text}, by_reference=True)
    assert parse_profiles(sent.data.SerializeToString().replace(b"caf_", BROKEN)) == expected.data


def test_of_spans_in_protobuf() -> None:
    sent = traces(span(NOW, name="GET /caf_"), span(NOW, CHILD, name="inner")).SerializeToString()
    (group,) = read_spans(parse_spans(sent.replace(b"GET /caf_", b"GET /caf\xc3")), ANY_TIME).groups
    assert [one.name for one in group.spans] == [f"GET /{MENDED}", "inner"]


def test_of_labels_that_are_pushed() -> None:
    request = PushRequest()
    request.series.add().labels.add(name="path", value="caf_")
    (label,) = parse_push(request.SerializeToString().replace(b"caf_", BROKEN), False).series[0].labels
    assert (label.name, label.value) == ("path", MENDED)


def test_of_labels_that_are_pushed_in_json() -> None:
    body = {HALF: 1, "series": [{"labels": [{"name": "path", "value": HALF}]}]}
    (label,) = parse_push(json.dumps(body).encode(), True).series[0].labels
    assert (label.name, label.value) == ("path", MENDED)


def test_of_labels_that_parca_takes() -> None:
    series = {"labels": {"labels": [{"name": "path", "value": HALF}, {"name": "file", "value": "caf_"}]}}
    body = json.dumps({"series": [series]}).encode().replace(b"caf_", BROKEN)
    assert [label.value for label in parse_write_raw(body).series[0].labels] == [MENDED] * 2


@pytest.mark.parametrize("body", [b"5", b"null", b"[]", b'"a"', b"{", b"[" * 100_000])
def test_json_that_is_no_push_and_no_traces_is_refused(body: bytes) -> None:
    with pytest.raises(Refused):
        parse_push(body, True)
    with pytest.raises(Refused):
        otlp_json.parse_spans(body)


def test_of_otlp_in_json() -> None:
    def broken(text: str) -> bytes:
        return text.replace("checkout-7", json.dumps(HALF)[1:-1]).encode()

    profiles = otlp_json.parse_profiles(broken(_json(host().data)))
    values = [one.value.string_value for one in profiles.resource_profiles[0].resource.attributes]
    assert MENDED in values
    sent = _json(traces(span(NOW, name="checkout-7"))).replace('"name"', '"checkout-7": 1, "name"')
    spans = otlp_json.parse_spans(broken(sent))
    assert spans.resource_spans[0].scope_spans[0].spans[0].name == MENDED


def _json(message: ProfilesData | TracesData) -> str:
    """As OTLP/JSON, without IDs, which it has in hex."""
    data = json_format.MessageToDict(message)
    for scope in (one for of in data.get("resourceSpans", []) for one in of["scopeSpans"]):
        for one in scope["spans"]:
            one |= {"traceId": "00" * 16, "spanId": "00" * 8}
    for scope in (one for of in data.get("resourceProfiles", []) for one in of["scopeProfiles"]):
        for one in scope["profiles"]:
            del one["profileId"]
    data.get("dictionary", {}).pop("linkTable", None)
    return json.dumps(data)


def test_of_speedscope() -> None:
    profile = {"type": "sampled", "unit": "none", "samples": [[0]], "weights": [3]}
    file = {"shared": {"frames": [{"name": HALF, "file": "caf_"}]}, "profiles": [profile]}
    sent = read_speedscope(json.dumps(file).encode().replace(b"caf_", BROKEN), Source((("service", "shop"),)), COUNT)
    name = sent.window.stacks.names[1]
    assert (name.function, name.file) == (MENDED, MENDED)


def test_what_is_broken_in_another_way_stays_an_error() -> None:
    data = traces(span(NOW, name="caf_")).SerializeToString().replace(b"caf_", BROKEN)
    with pytest.raises(DecodeError):
        valid_texts.parse(TracesData, data[:-1])
