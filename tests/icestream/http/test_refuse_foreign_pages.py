"""Requests as browsers and programs send them."""

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from icestream.http.refuse_foreign_pages import RefuseForeignPages

OWN, OTHER = "http://localhost:4040", "http://attacker.example"
SITE = "Sec-Fetch-Site"


@pytest.fixture
def http() -> TestClient:
    app = Starlette()
    for path in ("/", "/api"):
        app.add_route(path, lambda request: PlainTextResponse("taken"), methods=["GET", "POST", "PUT"])
    app.add_middleware(RefuseForeignPages, refusal=lambda path: PlainTextResponse("refused", 400))
    return TestClient(app, OWN)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": OTHER}, {"Origin": "null"}, {"Origin": ""}, {"Origin": "http://localhost:3000"},
        {SITE: "cross-site"}, {SITE: "same-site"}, {SITE: "same-site", "Origin": OWN}, {SITE: "none", "Origin": OTHER},
        {SITE: "x"}, {SITE: ""},
    ],
)  # fmt: skip
def test_what_a_page_of_another_site_sends_is_refused(http: TestClient, headers: dict[str, str]) -> None:
    answers = [ask("/", headers=headers).text for ask in (http.post, http.put, http.get)]
    assert answers == ["refused"] * 3


@pytest.mark.parametrize(
    "headers",
    [
        {}, {"Origin": OWN}, {"Origin": "https://localhost:4040"}, {SITE: "none"}, {SITE: "same-origin", "Origin": OWN},
        {SITE: "same-origin", "Origin": "https://profiles.example.org"},
    ],
)  # fmt: skip
def test_what_programs_and_our_own_page_send_is_taken(http: TestClient, headers: dict[str, str]) -> None:
    assert [http.post("/", headers=headers).text, http.get("/api", headers=headers).text] == ["taken"] * 2


def test_links_of_other_sites_lead_to_the_page_and_elsewhere_if_the_user_followed_them(http: TestClient) -> None:
    link = {SITE: "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    followed = link | {"Sec-Fetch-User": "?1"}
    assert [http.get("/", headers=link).text, http.get("/api", headers=link).text] == ["taken", "refused"]
    assert [http.get("/api", headers=followed).text, http.post("/api", headers=followed).text] == ["taken", "refused"]
    frame = followed | {"Sec-Fetch-Dest": "iframe"}
    assert [http.get("/", headers=frame).text, http.get("/api", headers=frame).text] == ["refused"] * 2


def test_two_origins_are_foreign(http: TestClient) -> None:
    assert http.post("/", headers=[("Origin", OWN), ("Origin", OTHER)]).text == "refused"
