import asyncio
import gzip
import json

import pytest
from google.protobuf.message import Message

from api.http import connect
from api.http.unknown_fields import unknown_in_message
from tests.api.conftest import Api
from tests.api.http.querier.calls import CPU, END_MS, START_MS, post

METHOD = "LabelNames"
EMPTY = gzip.compress(b"", mtime=0)  # test names hold it, and each test process must collect the same names


@pytest.mark.parametrize(
    ("body", "content_type", "headers", "status"),
    [
        (b"", "application/proto", {}, 200),
        (b"", "application/json", {}, 200),
        (b"{}", "application/json; charset=utf-8", {}, 200),
        (EMPTY, "application/proto", {"content-encoding": "gzip"}, 200),
        (b"{", "application/json", {}, 400),
        (b"[]", "application/json", {}, 400),
        (b"\xff\xfe", "application/json", {}, 400),
        (b'{"matchers":' + b"[" * 100_000, "application/json", {}, 400),
        (b'{"start":"x"}', "application/json", {}, 400),
        (b"\x0a\xff", "application/proto", {}, 400),
        (b"\x0a\x01\xff", "application/proto", {}, 400),
        (EMPTY[:-4], "application/proto", {"content-encoding": "gzip"}, 400),
        (b"no gzip", "application/proto", {"content-encoding": "gzip"}, 400),
        (gzip.compress(bytes(1 << 24), mtime=0), "application/proto", {"content-encoding": "gzip"}, 429),
        (bytes(1 << 21), "application/proto", {}, 429),
        (b"", "application/grpc", {}, 415),
        (b"", "", {}, 415),
        (b"", "application/proto", {"content-encoding": "br"}, 501),
    ],
)
def test_bad_requests_are_refused_as_the_protocol_says(
    api: Api, body: bytes, content_type: str, headers: dict[str, str], status: int
) -> None:
    response = post(api, METHOD, body, content_type, **headers)
    assert response.status_code == status, response.text
    if status != 200:
        assert set(response.json()) == {"code", "message"}


def test_a_foreign_host_is_told_as_the_protocol_says(api: Api) -> None:
    """Grafana shows a message in this form only; of others, it showed no more than "internal"."""
    response = post(api, METHOD, b"", host="icestream.example")
    assert (response.status_code, response.json()["code"]) == (400, "invalid_argument")
    assert "--api-allowed-hosts" in response.json()["message"]


def test_an_unexpected_error_is_told_as_the_protocol_says(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(message: Message) -> str | None:
        raise RuntimeError

    monkeypatch.setattr(connect, "unknown_in_message", fail)
    response = post(api, METHOD, b"")
    assert (response.status_code, response.json()["code"]) == (500, "internal")
    assert response.json()["message"] == "an unexpected error (see the log of the API)"


@pytest.mark.parametrize(
    "body",
    [rb'{"format": "\ud800"}', rb'{"stackTraceSelector": "\ud800"}', b'{"format": "\xed\xa0\x80"}', rb'{"\udfff": 1}'],
)
def test_half_of_a_pair_of_surrogates_is_refused(api: Api, body: bytes) -> None:
    response = post(api, "SelectMergeStacktraces", body, "application/json")
    assert (response.status_code, response.json()["code"]) == (400, "invalid_argument")
    assert "half of a pair of surrogates" in response.json()["message"]


@pytest.mark.parametrize(
    "method",
    [
        "SelectHeatmap",
        "/settings.v1.RecordingRulesService/ListRecordingRules",
        "/capabilities.v1.FeatureFlagsService/GetFeatureFlags",
    ],
)
def test_an_unknown_method_is_unimplemented(api: Api, method: str) -> None:
    """With the status that Profiles Drilldown looks at before it goes on without, and the code of Connect's clients."""
    response = post(api, method, b'{"queryType":"HEATMAP_QUERY_TYPE_SPAN"}', "application/json")
    assert (response.status_code, response.json()["code"]) == (501, "unimplemented")


@pytest.mark.parametrize(
    "wanted", ["PROFILE_FORMAT_FUNCTIONS", "PROFILE_FORMAT_SANDWICH", "PROFILE_FORMAT_FUNCTION_TREE"]
)
def test_newer_formats_are_refused_with_the_status_that_makes_profiles_drilldown_compute_them(
    api: Api, wanted: str
) -> None:
    """FunctionTableApiClient and SandwichApiClient there send these, and use the flame graph when they get 501."""
    selection = {"profileTypeID": CPU, "labelSelector": "{}", "start": START_MS, "end": END_MS}
    of_one = selection | {"format": wanted, "maxNodes": None, "sandwichFunction": "main"}
    of_two = {"left": selection, "right": selection, "format": wanted, "maxNodes": 5}
    for method, asked in (("SelectMergeStacktraces", of_one), ("Diff", of_two)):
        response = post(api, method, json.dumps(asked).encode(), "application/json")
        assert (response.status_code, response.json()["code"]) == (501, "unimplemented")


@pytest.mark.parametrize(
    ("method", "body", "named"),
    [
        ("LabelNames", b'{"profileTypes":["cpu"]}', "profileTypes"),
        ("Diff", b'{"left":{"stackTraceSelector":{"callSite":[{"x":1}]}}}', "left.stackTraceSelector.callSite.x"),
        ("SelectMergeStacktraces", b'{"format":"PROFILE_FORMAT_SANDWICH"}', "format: PROFILE_FORMAT_SANDWICH"),
        ("Diff", b'{"left":{"format":"PROFILE_FORMAT_FUNCTIONS"}}', "left.format: PROFILE_FORMAT_FUNCTIONS"),
        ("Diff", b'{"format":"PROFILE_FORMAT_FUNCTIONS"}', "format"),
    ],
)  # fmt: skip
def test_fields_that_are_not_known_are_refused_by_their_name(api: Api, method: str, body: bytes, named: str) -> None:
    response = post(api, method, body, "application/json")
    assert (response.status_code, response.json()["code"]) == (501, "unimplemented")
    assert response.json()["message"].startswith(f"{named}:")


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"\x92\x03\x01x", "field 50 of SelectMergeStacktracesRequest:"),
        (b"\x3a\x03\x22\x01x", "stackTraceSelector: field 4 of StackTraceSelector:"),
        (b"\x3a\x05\x0a\x03\x90\x03\x01", "stackTraceSelector: callSite: field 50 of CallSite:"),
    ],
)
def test_numbers_of_fields_that_are_not_known_are_refused(api: Api, body: bytes, named: str) -> None:
    response = post(api, "SelectMergeStacktraces", body)
    assert (response.status_code, response.json()["code"]) == (501, "unimplemented")
    assert response.json()["message"].startswith(named)


def test_empty_fields_ask_for_nothing(api: Api) -> None:
    body = b'{"profileTypes":[],"more":null,"some":"","other":{},"flag":false,"matchers":null}'
    assert post(api, METHOD, body, "application/json").status_code == 200
    assert post(api, METHOD, b"\x92\x03\x00\x98\x03\x00").status_code == 200


def test_a_message_is_read_beside_the_event_loop(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """To read one of 1 MB takes tenths of a second, in which other requests, above all /healthz, are answered."""

    def read(message: Message) -> str | None:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return unknown_in_message(message)

    monkeypatch.setattr(connect, "unknown_in_message", read)
    assert post(api, METHOD, b"").status_code == 200
