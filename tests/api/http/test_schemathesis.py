"""Every route, asked anything that /openapi.json permits and anything that it does not: answers are as it says."""

import functools
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from clickhouse_connect.driver.client import Client
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, assume, given, settings

from api.http.app import create_app
from api.settings import ApiSettings
from icestream.clickhouse.client import Clients, connect
from icestream.topics import DEFAULT_PROFILE_TYPE
from tests.api.conftest import DATABASE, RANGE, remove_rows
from tests.api.fill import Sample, fill, frame
from tests.api.queries.operations_data import Request, insert_requests

TRACE = "ab" * 16
MEANT = {
    **RANGE,
    **{f"baseline_{name}": value for name, value in RANGE.items()},
    "selector": '{service=~".+"}',
    "baseline_selector": "{}",
    "profile_type": DEFAULT_PROFILE_TYPE,
    "sum_by": "service",
    "step": "5m",
    "function": "hot",
    "ids": "00000000000000ff",
}
"""Texts with a grammar that the description only says in words: random ones are nearly all refused."""
MEANT_ON = {"/api/v1/operations/slow": {"selector": '{service="shop", operation="GET /a"}', "slow": "90", "fast": "10"}}
EXAMPLES = 5
LONGEST_QUERY = 50_000
"""Clients refuse longer ones."""


@functools.cache
def description() -> dict[str, Any]:
    """What /openapi.json says."""
    return create_app(ApiSettings(), Clients("http://127.0.0.1:1/default")).openapi()


def paths(having: str = "responses") -> list[str]:
    """The paths of the operations with GET that have `parameters`, or of all."""
    return sorted(path for path, methods in description()["paths"].items() if having in methods.get("get", {}))


@pytest.fixture(scope="module")
def http(engine: str, tables: Client) -> Iterator[TestClient]:
    """The API with a few samples. The threads of schemathesis's own client would live until the process ends, and keep
    the embedded ClickHouse open, which ends before."""
    remove_rows(tables)
    client = connect(engine, database=DATABASE)
    main, hot = frame("main"), frame("hot")
    fill(client, [Sample((main, hot), 5), Sample((main,), 3, labels={"service": "cart"}), Sample(())])
    fill(client, [Sample((main, hot), 7, trace_id=bytes.fromhex(TRACE))])
    insert_requests(client, [Request(number, "GET /a", duration_ns=number * 10**7) for number in (1, 2)])
    app = create_app(ApiSettings(), Clients(engine, database=DATABASE))
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as http:
        yield http
    client.close()


def test_what_is_served_is_this_description(http: TestClient) -> None:
    assert http.get("/openapi.json").json() == json.loads(json.dumps(description()))


@pytest.mark.parametrize("path", paths())
def test_answers_are_as_described(http: TestClient, path: str) -> None:
    statuses = ask(http, path, "positive", MEANT | MEANT_ON.get(path, {}))
    assert 200 in statuses
    ask(http, path, "positive", {})


@pytest.mark.parametrize("path", paths("parameters"))
def test_what_is_not_described_is_refused_as_described(http: TestClient, path: str) -> None:
    ask(http, path, "negative", {})


@functools.cache
def schema() -> Any:
    import schemathesis  # takes a second, and every process of tests reads this file

    return schemathesis.openapi.from_dict(description())


def ask(http: TestClient, path: str, mode: str, fixed: dict[str, str]) -> list[int]:
    """Asks the route some questions, `positive` or `negative` ones, and checks the answers against the description;
    returns their statuses."""
    from schemathesis import GenerationMode
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    operation = schema()[path]["GET"]
    declared = {parameter.name for parameter in operation.query}
    query = {name: value for name, value in fixed.items() if name in declared}
    path_parameters = {"trace_id": TRACE} if fixed else None
    statuses = []

    @settings(max_examples=EXAMPLES, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(GenerationMode(mode), query=query, path_parameters=path_parameters))
    def question(case: Any) -> None:
        request = case.as_transport_kwargs(base_url="http://localhost")
        assume(len(urlencode(request["params"] or {}, doseq=True, errors="replace")) < LONGEST_QUERY)
        response = http.get(request["url"], params=request["params"])
        # A selector or a time may be refused: the description says what they look like in words.
        case.validate_response(response, excluded_checks=[positive_data_acceptance])
        statuses.append(response.status_code)

    question()
    return statuses
