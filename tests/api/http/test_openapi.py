"""/openapi.json is true: what the API answers is as it says, and what it does not have is refused."""

import jsonschema
import pytest
from clickhouse_connect.driver.client import Client

from api.errors import CODES
from tests.api.conftest import Api
from tests.api.fill import Sample, fill, frame

MAIN, HOT = frame("main"), frame("hot")


@pytest.mark.parametrize(
    ("path", "wrong", "meant"),
    [
        ("/api/v1/merge", "selecter", "selector"),
        ("/api/v1/diff", "baseline-selector", "baseline_selector"),
        ("/api/v1/top", "colour", ""),
        ("/api/v1/labels/service/values", "Contains", "contains"),
        ("/api/v1/profile-types", "start", ""),
        (f"/api/v1/traces/{'ab' * 16}/cpu", "fromat", "format"),
    ],
)
def test_an_unknown_parameter_is_refused_and_the_nearest_known_one_named(
    api: Api, path: str, wrong: str, meant: str
) -> None:
    answer = api.http.get(path, params={wrong: "x"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "unknown_parameter")
    assert repr(wrong) in error["message"]
    assert (f"did you mean {meant}?" in error["hint"]) if meant else ("did you mean" not in error["hint"])


def test_a_parameter_that_is_given_twice_is_refused(api: Api) -> None:
    answer = api.http.get("/api/v1/merge?selector={a=''}&selector={}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_parameter")


def test_a_label_may_have_any_name(api: Api, client: Client) -> None:
    name = "app.kubernetes.io/name"
    fill(client, [Sample((MAIN,), labels={name: "shop"})])
    assert api.http.get(f"/api/v1/labels/{name.replace('/', '%2F')}/values").json()["values"] == ["shop"]


def test_examples_are_as_their_schemas(api: Api) -> None:
    document = api.http.get("/openapi.json").json()
    checked = 0
    for path, methods in document["paths"].items():
        for status, response in (methods.get("get") or methods["post"])["responses"].items():
            content = response.get("content", {}).get("application/json", {})
            if "example" in content:
                check(document, content, content["example"])
                checked += 1
            if path.startswith("/api/") and int(status) >= 400:
                code = content["schema"]["properties"]["error"]["properties"]["code"]["enum"]
                assert code == list(CODES[int(status)])
    assert checked >= 7


def test_metrics_are_text_and_only_those_of_what_the_process_runs(api: Api) -> None:
    import sinks.metrics  # noqa: F401  the process has loaded them, and does not run a sink

    response = api.http.get("/openapi.json").json()["paths"]["/metrics"]["get"]["responses"]["200"]
    assert set(response["content"]) == {"text/plain"}
    answer = api.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "icestream_api_requests_total" in answer.text
    assert "icestream_sinks" not in answer.text
    assert "_created" not in answer.text


def check(document: dict, content: dict, value: object) -> None:
    jsonschema.validate(value, content["schema"] | {"components": document["components"]})
