"""Whatever is asked, the answer says what is wrong and what to do."""

import base64
import json
import threading
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client
from fastapi import FastAPI
from fastapi.testclient import TestClient

from api.http.app import create_app
from api.http.middleware import limit_queries
from api.http.routes import merge
from api.settings import ApiSettings
from icestream.clickhouse.client import Clients
from tests.api.conftest import RANGE, Api
from tests.api.fill import Sample, fill, frame
from tests.waiting import PATIENCE_S, wait_until

MAIN, HOT = frame("main"), frame("hot")
LONE_SURROGATE = base64.urlsafe_b64encode(json.dumps(["\ud800", 0, 1, 0, "0" * 32]).encode()).decode()
TRACE = f"/api/v1/traces/{'ab' * 16}/cpu"


@pytest.mark.parametrize(
    ("path", "parameters", "status", "code"),
    [
        ("/api/v1/merge", {"selector": "{service=}"}, 400, "bad_selector"),
        ("/api/v1/merge", {"selector": '{service=~"a)|(b"}'}, 400, "bad_selector"),
        ("/api/v1/merge", {"selector": '{version=~"["}'}, 400, "bad_selector"),
        ("/api/v1/labels", {"selector": '{version=~"(?P<"}'}, 400, "bad_selector"),
        ("/api/v1/merge", {"selector": "{" + "a" * 5000}, 400, "bad_parameter"),
        ("/api/v1/merge", {"start": "yesterday"}, 400, "bad_time"),
        ("/api/v1/merge", {"start": "now", "end": "now-1h"}, 400, "bad_time"),
        ("/api/v1/merge", {"end": "99999999999999999999"}, 400, "bad_time"),
        ("/api/v1/merge", {"profile_type": "cpu"}, 400, "bad_profile_type"),
        ("/api/v1/merge", {"format": "svg"}, 400, "bad_parameter"),
        ("/api/v1/merge", {"max_nodes": "0"}, 400, "bad_parameter"),
        ("/api/v1/merge", {"max_nodes": "many"}, 400, "bad_parameter"),
        ("/api/v1/merge", {"max_nodes": "1000000000"}, 422, "query_too_large"),
        ("/api/v1/diff", {"baseline_selector": "{"}, 400, "bad_selector"),
        ("/api/v1/diff", {"baseline_start": "x"}, 400, "bad_time"),
        ("/api/v1/timeline", {"step": "0"}, 400, "bad_step"),
        ("/api/v1/timeline", {"step": "-5s"}, 400, "bad_step"),
        ("/api/v1/timeline", {"step": "1ms"}, 422, "query_too_large"),
        ("/api/v1/timeline", {"sum_by": "a,b,c,d,e,f"}, 400, "bad_parameter"),
        ("/api/v1/traces", {"cursor": "x"}, 400, "bad_cursor"),
        ("/api/v1/traces", {"cursor": "W10"}, 400, "bad_cursor"),
        ("/api/v1/traces", {"cursor": LONE_SURROGATE}, 400, "bad_cursor"),
        ("/api/v1/merge", {"focus": f"(?:{'k' * 300}){{500}}"}, 400, "bad_regex"),  # large where case is ignored
        ("/api/v1/top", {"hide": "[ -?A-~]{0,999}" * 60}, 400, "bad_regex"),  # took 5 s to compile
        ("/api/v1/merge", {"selector": '{service=~"(a{99}){99}"}'}, 400, "bad_selector"),
        ("/api/v1/traces", {"cursor": "é" * 9}, 400, "bad_cursor"),
        ("/api/v1/traces", {"cursor": "W1tbW1tb" * 30}, 400, "bad_cursor"),
        ("/api/v1/traces", {"limit": "100000"}, 400, "bad_parameter"),
        ("/api/v1/traces", {"order": "wall"}, 400, "bad_parameter"),
        ("/api/v1/top", {"by": "colour"}, 400, "bad_parameter"),
        ("/api/v1/labels/service/values", {"limit": "-1"}, 400, "bad_parameter"),
        (TRACE, {}, 404, "unknown_trace"),
        ("/api/v1/nothing", {}, 404, "not_found"),
    ],
)
def test_what_cannot_be_answered_is_4xx_with_code_message_and_hint(
    api: Api, path: str, parameters: dict[str, str], status: int, code: str
) -> None:
    answer = api.get(path, **parameters)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert set(answer.json()["error"]) == {"code", "message", "hint"}
    assert answer.json()["error"]["message"]
    assert answer.json()["error"]["hint"]


def test_other_methods_are_405(api: Api) -> None:
    answer = api.http.post("/api/v1/top")
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")


HOSTILE = [
    "' OR 1=1 --",
    "\\",
    "\\'",
    "{p0:String}",
    "%s",
    "%(p0)s",
    "\x00",
    "\n\t\r",
    "'); DROP TABLE samples; --",
    "日本語",
    "\\N",
]


def test_values_are_never_text_of_a_query(api: Api, client: Client) -> None:
    samples = [Sample((MAIN,), 3, labels={"service": value, "x": value}) for value in HOSTILE]
    fill(client, [*samples, Sample((HOT,), 5)])
    others = 3 * (len(HOSTILE) - 1) + 5
    for value in HOSTILE:
        quoted = '"' + "".join(f"\\u{ord(c):04x}" for c in value) + '"'
        for label in ("service", "x"):
            assert api.json("/api/v1/merge", selector=f"{{{label}={quoted}}}")["total"] == 3
            assert api.json("/api/v1/merge", selector=f"{{{label}!={quoted}}}")["total"] == others
        assert api.json("/api/v1/merge", selector=f"{{{quoted}={quoted}}}")["total"] == 0
        assert value in api.json("/api/v1/labels/service/values", contains=value)["values"]
        assert api.get("/api/v1/timeline", sum_by=value).status_code == 200


def limited(engine: str, database: str, **limits: int) -> TestClient:
    settings = ApiSettings(**limits)  # type: ignore[arg-type]
    return TestClient(
        create_app(settings, Clients(engine, database=database)),
        base_url="http://localhost",
        raise_server_exceptions=False,
    )


@pytest.mark.parametrize("limits", [{"api_max_rows": 2}, {"api_max_stacks": 1}, {"api_max_memory": 1000}])
def test_a_query_that_is_too_large_says_what_to_narrow_and_the_next_is_answered(
    engine: str, database: str, client: Client, limits: dict[str, int]
) -> None:
    fill(client, [Sample((MAIN,)), Sample((HOT,)), Sample((MAIN, HOT)), Sample((MAIN,), labels={"service": "cart"})])
    http = limited(engine, database, **limits)
    answer = http.get("/api/v1/merge", params=RANGE)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "query_too_large")
    assert "narrow" in answer.json()["error"]["hint"]
    assert http.get("/healthz").status_code == 200


def test_after_a_failed_query_the_next_answer_is_whole(api: Api, client: Client) -> None:
    fill(client, [Sample((MAIN,))])
    for _ in range(5):
        assert api.get("/api/v1/merge", selector='{version=~"("}').status_code == 400
        assert api.json("/api/v1/merge")["total"] == 10_000_000


@pytest.fixture
def away() -> TestClient:
    """The API of a store that is away."""
    app = create_app(ApiSettings(), Clients("http://127.0.0.1:1/default"))
    return TestClient(app, base_url="http://localhost", raise_server_exceptions=False)


def test_a_store_that_is_away_or_not_set_up_is_503(away: TestClient, engine: str, client: Client) -> None:
    for path in ("/api/v1/merge", "/api/v1/labels", "/api/v1/traces"):
        answer = away.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
        assert int(answer.headers["retry-after"]) > 0
    assert away.get("/readyz").status_code == 503
    assert away.get("/healthz").status_code == 200
    client.command("CREATE DATABASE IF NOT EXISTS empty")
    bare = limited(engine, "empty")
    assert bare.get("/api/v1/merge").json()["error"]["hint"] == "run: icestream migrate"
    assert "migrate" not in bare.get("/healthz").text


GAUGE = "memory:inuse_space:bytes:space:bytes"
SLOW = "/api/v1/operations/slow"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "parameters", "traces"),
    [
        ("/api/v1/merge", {"max_nodes": "1000000000"}, ""),
        ("/api/v1/merge", {"max_nodes": "1000000000"}, "trace_ids"),
        ("/api/v1/merge", {"format": "pgo", "hide": "x"}, ""),
        ("/api/v1/merge", {"format": "pgo", "group_by": "host"}, ""),
        ("/api/v1/merge", {"format": "pgo", "invert": "true"}, "trace_ids"),
        ("/api/v1/merge", {"group_by": "span_id"}, ""),
        ("/api/v1/merge", {"group_by": "operation", "profile_type": GAUGE}, ""),
        ("/api/v1/diff", {"baseline_start": "now-1d", "max_nodes": "1000000000"}, ""),
        ("/api/v1/diff", {"max_nodes": "1000000000"}, "trace_ids baseline_trace_ids"),
        ("/api/v1/sandwich", {"function": "main", "max_nodes": "1000000000"}, ""),
        ("/api/v1/timeline", {"sum_by": "trace_id"}, ""),
        ("/api/v1/timeline", {"sum_by": "operation", "profile_type": GAUGE}, ""),
        ("/api/v1/operations", {"selector": '{span_name="x"}'}, ""),
        (SLOW, {"selector": '{service="shop"}'}, ""),
        (SLOW, {"selector": '{service="shop", operation="x"}', "max_nodes": "1000000000"}, ""),
        (TRACE, {"format": "pgo", "by": "line"}, ""),
        (TRACE, {"format": "tree", "max_nodes": "1000000000"}, ""),
    ],
)
def test_what_no_answer_can_have_is_refused_before_the_store_is_asked(
    away: TestClient, path: str, parameters: dict[str, str], traces: str
) -> None:
    if traces:
        answer = away.post(path, params=parameters, json={name: ["ab" * 16] for name in traces.split()})
    else:
        answer = away.get(path, params=parameters)
    assert answer.status_code in (400, 422), answer.text


def test_more_queries_than_may_wait_are_told_to_come_back(
    engine: str, database: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(client, [Sample((MAIN,))])
    told, read = threading.Event(), merge.read_selected_stacks

    def waits(*arguments: Any) -> Any:
        assert told.wait(PATIENCE_S)
        return read(*arguments)

    monkeypatch.setattr(limit_queries, "_MAX_WAIT_S", PATIENCE_S)
    monkeypatch.setattr(merge, "read_selected_stacks", waits)
    with limited(engine, database, api_max_concurrent=1, api_max_waiting=1) as http:
        statuses: list[int] = []

        def ask() -> None:
            answer = http.get("/api/v1/merge", params=RANGE)
            statuses.append(answer.status_code)
            assert answer.status_code == 200 or answer.headers["retry-after"]

        threads = [threading.Thread(target=ask) for _ in range(12)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(statuses) == 10)
        told.set()
        for thread in threads:
            thread.join()
        assert statuses == [503] * 10 + [200] * 2
        assert http.get("/api/v1/merge", params=RANGE).status_code == 200


@pytest.mark.parametrize("path", ["/querier.v1.QuerierService/LabelNames", "/pyroscope/render"])
def test_pyroscopes_tools_are_told_to_come_back_in_their_form(path: str) -> None:
    with TestClient(limit_queries.LimitQueries(FastAPI(), running=0, waiting=0)) as http:
        answer = http.post(path)
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert set(answer.json()) == {"code", "message"}
    assert answer.headers["retry-after"]


def test_head_is_answered_without_a_body_and_large_answers_are_compressed(api: Api, client: Client) -> None:
    fill(client, [Sample((MAIN, frame(f"f{i}"))) for i in range(100)])
    head = api.http.head("/api/v1/merge", params=RANGE)
    assert (head.status_code, head.content) == (200, b"")
    assert api.get("/api/v1/merge").headers["content-encoding"] == "gzip"


def test_operations_have_their_routes(api: Api) -> None:
    api.get("/api/v1/merge")
    assert api.get("/readyz").json() == api.get("/ready").json() == {"status": "ready"}
    assert "icestream_api_requests_total{" in api.get("/metrics").text
    docs = api.get("/docs").text
    document = api.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        assert path in docs
        operation = methods.get("get") or methods["post"]
        assert operation["summary"]
        for parameter in operation.get("parameters", []):
            assert '"description"' in json.dumps(parameter), (path, parameter)
