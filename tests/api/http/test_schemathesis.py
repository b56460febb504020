"""Every route, asked anything that /openapi.json permits and anything that it does not: answers are as it says."""

import functools

import pytest
import schemathesis
from clickhouse_connect.driver.client import Client
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from api.http.app import create_app
from api.settings import ApiSettings
from icestream.clickhouse import Clients
from icestream.topics import DEFAULT_PROFILE_TYPE
from tests.api.conftest import RANGE
from tests.api.fill import Sample, fill, frame

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
}
"""Texts with a grammar that the description only says in words: random ones are nearly all refused."""
EXAMPLES = 15


@functools.cache
def paths(having: str = "responses") -> list[str]:
    """Of the operations that have `parameters`, or of all."""
    described = create_app(ApiSettings(), Clients("http://127.0.0.1:1/default")).openapi()["paths"]
    return sorted(path for path, methods in described.items() if having in methods["get"])


@pytest.fixture
def app(engine: str, database: str, client: Client) -> FastAPI:
    main, hot = frame("main"), frame("hot")
    fill(client, [Sample((main, hot), 5), Sample((main,), 3, labels={"service": "cart"}), Sample(())])
    fill(client, [Sample((main, hot), 7, trace_id=bytes.fromhex(TRACE))])
    return create_app(ApiSettings(), Clients(engine, database=database))


@pytest.mark.parametrize("path", paths())
def test_answers_are_as_described(app: FastAPI, path: str) -> None:
    statuses = ask(app, path, GenerationMode.POSITIVE, MEANT)
    assert 200 in statuses
    ask(app, path, GenerationMode.POSITIVE, {})


@pytest.mark.parametrize("path", paths("parameters"))
def test_what_is_not_described_is_refused_as_described(app: FastAPI, path: str) -> None:
    ask(app, path, GenerationMode.NEGATIVE, {})


def ask(app: FastAPI, path: str, mode: GenerationMode, fixed: dict[str, str]) -> list[int]:
    """Asks the route some questions, and checks the answers against the description; returns their statuses."""
    operation = schemathesis.openapi.from_asgi("/openapi.json", app)[path]["GET"]
    declared = {parameter.name for parameter in operation.query}
    query = {name: value for name, value in fixed.items() if name in declared}
    statuses = []

    @settings(max_examples=EXAMPLES, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(mode, query=query, path_parameters={"trace_id": TRACE} if fixed else None))
    def question(case: Case) -> None:
        response = case.call()
        # A selector or a time may be refused: the description says what they look like in words.
        case.validate_response(response, excluded_checks=[positive_data_acceptance])
        statuses.append(response.status_code)

    question()
    return statuses
