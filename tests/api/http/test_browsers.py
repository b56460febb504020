"""What a page of a stranger cannot do with the API in a visitor's browser."""

import http.client
import socket
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from api.http.app import create_app
from api.settings import ApiSettings
from gateway.settings import GatewaySettings
from icestream.clickhouse.client import Clients
from icestream.http.server import Server
from icestream.settings import SettingError, variable

AWAY = "http://127.0.0.1:1/default"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    settings = ApiSettings(
        api_allowed_hosts="profiles.example.org:443, *.corp.example.net, Icestream.Example.Org., ::1"
    )
    server = Server(create_app(settings, Clients(AWAY)), "127.0.0.1:0")
    server.start()
    yield server
    server.close()


def _status(server: Server, host: str, path: str = "/docs") -> int:
    """The status of a request to the server's address that names this host, as a browser makes it after DNS
    rebinding."""
    connection = http.client.HTTPConnection(server.address)
    connection.putrequest("GET", path, skip_host=True)
    connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


@pytest.mark.parametrize(
    "host",
    [
        "attacker.example", "attacker.example:4060", "localhost.attacker.example", "127.0.0.1.attacker.example",
        "corp.example.net", "xcorp.example.net", "profiles.example.org.attacker.example", "[attacker.example]", "",
    ],
)  # fmt: skip
def test_a_name_of_a_stranger_is_refused_on_every_route_that_has_profiles(server: Server, host: str) -> None:
    for path in ("/api/v1/labels", "/", "/docs", "/openapi.json", "/querier.v1.QuerierService/LabelNames"):
        assert _status(server, host, path) == 400


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "LOCALHOST:4060", "icestream.localhost", "127.0.0.1", "127.0.0.1:4060", "[::1]:4060", "192.0.2.7",
        "profiles.example.org:443", "Profiles.Example.Org.", "a.b.corp.example.net",
        "icestream.example.org", socket.gethostname(),
    ],
)  # fmt: skip
def test_this_machines_names_addresses_and_allowed_names_are_answered(server: Server, host: str) -> None:
    assert _status(server, host) == 200


def test_probes_and_prometheus_may_use_any_name(server: Server) -> None:
    assert _status(server, "icestream.monitoring.svc", "/healthz") == 200
    assert _status(server, "icestream.monitoring.svc", "/metrics") == 200


def test_each_refused_name_is_in_the_log_once_with_the_setting_and_a_stranger_cannot_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = TestClient(create_app(ApiSettings(), Clients(AWAY)))
    for host in ["icestream.prod.svc:4060", "Icestream.Prod.svc", "new\\nline", *(f"{n}.example" for n in range(100))]:
        assert client.get("/docs", headers={"Host": host}).status_code == 400
    lines = [record.getMessage() for record in caplog.records if "refused a request" in record.getMessage()]
    assert "'icestream.prod.svc'; if it is this machine, add it to ICESTREAM_API_ALLOWED_HOSTS" in lines[0]
    assert sum("icestream.prod.svc" in line for line in lines) == 1
    assert len(lines) == 20


@pytest.mark.parametrize("settings", [ApiSettings, GatewaySettings])
@pytest.mark.parametrize("text", ["http://example.org", "a, b c", "*a.example", "a.*.example", "example.org:http", "."])
def test_what_can_never_match_is_refused_at_the_start(
    settings: type[ApiSettings] | type[GatewaySettings], text: str
) -> None:
    name = "api_allowed_hosts" if settings is ApiSettings else "gateway_allowed_hosts"
    with pytest.raises(SettingError, match=name):
        settings.load({variable(name): text})


def test_any_name_can_be_allowed() -> None:
    app = create_app(ApiSettings(api_allowed_hosts="*"), Clients(AWAY))
    assert TestClient(app, base_url="http://attacker.example").get("/docs").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/", "/main.js", "/docs", "/api/v1/nothing", "/openapi.json", "/healthz"])
def test_no_answer_is_shown_in_frames_of_others_or_taken_for_another_type(path: str) -> None:
    app = create_app(ApiSettings(), Clients(AWAY))
    answer = TestClient(app, base_url="http://localhost").get(path)
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert len(answer.headers.get_list("Content-Security-Policy")) == 1


def test_a_refusal_has_the_headers_too(server: Server) -> None:
    app = create_app(ApiSettings(), Clients(AWAY))
    answer = TestClient(app, base_url="http://attacker.example").get("/")
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "foreign_host"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("path", ["/api/v1/merge", "/api/v1/diff", "/querier.v1.QuerierService/LabelNames"])
def test_a_page_of_another_site_cannot_make_queries(path: str) -> None:
    http = TestClient(create_app(ApiSettings(), Clients(AWAY)), base_url="http://localhost")
    answer = http.post(path, headers={"Sec-Fetch-Site": "cross-site"})
    assert (answer.status_code, "another site" in answer.text) == (400, True)


@pytest.mark.slow
def test_trace_lists_are_json() -> None:
    http = TestClient(create_app(ApiSettings(), Clients(AWAY)), base_url="http://localhost")
    answer = http.post("/api/v1/merge", content='{"trace_ids": []}', headers={"Content-Type": "text/plain"})
    assert (answer.status_code, answer.json()["error"]["hint"]) == (400, "send application/json")
