"""Annotations: what is sent is listed where it belongs, and new versions of services are told."""

from collections.abc import Iterator

import pytest
from clickhouse_connect.driver.client import Client
from fastapi.testclient import TestClient
from httpx2 import Response

from api.http.app import create_app
from api.settings import ApiSettings
from icestream.clickhouse.client import Clients
from tests.api.conftest import Api
from tests.api.fill import START_S
from tests.api.queries.two_versions import COSTS, Version, insert_versions

PATH = "/api/v1/annotations"
NOTE = {"text": "load test", "time": str(START_S + 60), "labels": {"service": "shop"}}


def post(api: Api, **changes: object) -> Response:
    return api.http.post(PATH, json=NOTE | changes)


def listed(api: Api, **parameters: object) -> list[tuple[str, str]]:
    return [(each["kind"], each["text"]) for each in api.json(PATH, **parameters)["annotations"]]


def test_what_is_sent_is_listed_in_its_time_where_the_selector_does_not_exclude_it(api: Api) -> None:
    sent = post(api)
    assert (sent.status_code, sent.json()["kind"], sent.json()["labels"]) == (200, "note", {"service": "shop"})
    assert post(api, text="all", labels={}, time=str(START_S + 30)).status_code == 200
    assert listed(api) == [("note", "all"), ("note", "load test")]
    for selector in ('{service="shop", host="h"}', '{service=~"sh.*"}', '{service!="search"}'):
        assert listed(api, selector=selector) == [("note", "all"), ("note", "load test")], selector
    for selector in ('{service="search"}', '{service!~"sh.*"}'):
        assert listed(api, selector=selector) == [("note", "all")], selector
    assert listed(api, start=START_S, end=START_S + 60) == [("note", "all")]


def test_what_is_too_large_or_not_an_annotation_is_refused(api: Api) -> None:
    for changes in (
        {"text": ""}, {"text": "x" * 501}, {"text": 7}, {"color": "red"}, {"labels": {"a": ""}},
        {"labels": {f"l{n}": "x" for n in range(9)}}, {"labels": {"a": "x" * 201}},
    ):  # fmt: skip
        answer = post(api, **changes)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_body"), changes
    assert post(api, time="soon").json()["error"]["code"] == "bad_time"
    assert post(api, text="x" * 20_000).json()["error"]["code"] == "query_too_large"
    assert api.http.post(PATH, content=b"\xff").json()["error"]["code"] == "bad_body"
    assert listed(api) == []


@pytest.fixture
def public(engine: str, database: str) -> Iterator[TestClient]:
    """An API that listens on all addresses."""
    app = create_app(ApiSettings(listen="0.0.0.0:4060"), Clients(engine, database=database))
    with TestClient(app, base_url="http://localhost") as http:
        yield http


def test_only_an_api_of_the_loopback_takes_annotations_unless_told_so(public: TestClient, api: Api) -> None:
    assert public.post(PATH, json=NOTE).status_code == 404
    foreign = api.http.post(PATH, json=NOTE, headers={"Origin": "https://elsewhere.example"})
    assert foreign.json()["error"]["code"] == "foreign_page"
    assert public.get(PATH, params={"start": START_S, "end": START_S + 60}).json()["annotations"] == []


def test_the_first_samples_of_another_version_are_a_deployment_to_the_millisecond(api: Api, client: Client) -> None:
    few = {"requests": 50, "seconds": 60}
    insert_versions(
        client,
        Version(COSTS, 0, **few), Version(COSTS, 300, service_version="1.1", **few),
        Version(COSTS, 7_200, service_version="1.2", **few), Version(COSTS, 7_200, service="other", **few),
    )  # fmt: skip
    whole = {"start": START_S, "end": START_S + 10_800}
    assert [text for _, text in listed(api, **whole)] == ["first samples of 1.1", "first samples of 1.2"]
    (first,) = client.query("SELECT toString(min(time)) FROM samples WHERE time >= {t:UInt32}",
                            parameters={"t": START_S + 300}).result_rows[0]  # fmt: skip
    found = api.json(PATH, **whole)["annotations"][0]
    assert found["time"] == first.replace(" ", "T") + "Z"
    assert found["labels"] == {"service": "shop", "version": "1.1"}
    assert listed(api, start=START_S + 600, end=START_S + 7_100) == []
    assert listed(api, **whole, selector='{service="other"}') == []
    assert len(listed(api, **whole, selector='{service="shop", service_version="1.1"}')) == 2
