"""Targets are asked over HTTP and HTTPS: certificates, credentials, redirects, and answers that lie."""

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest
from yarl import URL

from gateway.scrape.config import load_jobs
from gateway.scrape.discovery import Target
from gateway.scrape.fetch import Fetcher
from gateway.scrape.http_client import ScrapeError, check_not_inward
from gateway.scrape.job import ProfilePath
from gateway.settings import GatewaySettings
from tests.gateway.scrape.servers import Certificates, Request, Served, serving
from tests.waiting import PATIENCE_S

PROFILE = b"a profile"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


def fetch(
    served: Served, folder: Path, job: str = "", timeout: str = f"{PATIENCE_S:.0f}s", target: Target | None = None
) -> bytes:
    """Asks with the fields of a job, in YAML."""
    file = folder / "jobs.yaml"
    file.write_text(f"scrape_configs: [{{job_name: a, scrape_timeout: {timeout}, {job}}}]")
    (loaded,) = load_jobs(file)

    async def ask() -> bytes:
        settings = GatewaySettings(gateway_body_mb=1)
        fetcher = Fetcher(loaded, settings, asyncio.Semaphore(1))
        try:
            return await fetcher.fetch(target or Target(served.url, ()), ProfilePath("own", "/profile"))
        finally:
            await fetcher.close()

    return asyncio.run(ask())


def answer(request: Request) -> None:
    request.answer(PROFILE)


def test_headers_and_parameters_of_a_job_go_through_its_proxy(tmp_path: Path) -> None:
    (tmp_path / "tenant").write_text("fleet\n")
    headers = f"http_headers: {{X-Zone: {{values: [a, b]}}, X-Tenant: {{files: ['{tmp_path}/tenant']}}}}"
    paths: list[str] = []

    def proxy(request: Request) -> None:
        paths.append(request.path)
        request.answer(PROFILE)

    with serving(proxy) as served:
        target = Target("http://shop.invalid:6060", (), (("gc", "1"), ("of", "a b")))
        assert fetch(served, tmp_path, f"proxy_url: '{served.url}', {headers}", target=target) == PROFILE
    assert paths == ["http://shop.invalid:6060/profile?gc=1&of=a+b"]
    assert served.headers[0]["X-Tenant"] == "fleet"
    assert served.headers[0].get_all("X-Zone") == ["a", "b"]


def test_headers_do_not_follow_a_redirect_to_another_server(tmp_path: Path) -> None:
    with serving(answer) as elsewhere:

        def redirect(request: Request) -> None:
            request.answer(status=302, Location=f"{elsewhere.url}/profile")

        with serving(redirect) as served:
            assert fetch(served, tmp_path, "http_headers: {X-Token: {secrets: [s]}}") == PROFILE
    assert served.headers[0]["X-Token"] == "s"
    assert "X-Token" not in elsewhere.headers[0]


def test_an_answer_above_the_limit_of_its_job_is_not_read(tmp_path: Path) -> None:
    with serving(lambda request: request.answer(b"x" * 3000)) as served:
        assert len(fetch(served, tmp_path, "body_size_limit: 3KB")) == 3000
        with pytest.raises(ScrapeError, match="more than 2048 bytes"):
            fetch(served, tmp_path, "body_size_limit: 2KB")


def tls(certificates: Certificates, **fields: str) -> str:
    """The field tls_config; files by their names."""
    values = {name: certificates.file(value) if name.endswith("_file") else value for name, value in fields.items()}
    return f"tls_config: {{{', '.join(f'{name}: {value}' for name, value in values.items())}}}"


def test_an_authority_of_ones_own_a_client_certificate_and_a_password(
    certificates: Certificates, tmp_path: Path
) -> None:
    with serving(answer, certificates.context(client=ssl.CERT_REQUIRED)) as served:
        config = tls(certificates, ca_file="ca.pem", cert_file="client.pem", key_file="client.key")
        assert fetch(served, tmp_path, f"{config}, basic_auth: {{username: u, password: pw}}") == PROFILE
    assert served.client_names == ["client"]
    assert served.authorizations == ["Basic dTpwdw=="]


def test_a_target_whose_relabeled_scheme_is_https_is_asked_with_the_jobs_tls(
    certificates: Certificates, tmp_path: Path
) -> None:
    with serving(answer, certificates.context()) as served:
        assert fetch(served, tmp_path, f"scheme: http, {tls(certificates, ca_file='ca.pem')}") == PROFILE


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, r"the certificate of 127\.0\.0\.1:\d+ is not accepted: .*certificate"),
        ({"ca_file": "other-ca.pem"}, r"the certificate of 127\.0\.0\.1:\d+ is not accepted: .*certificate"),
        ({"ca_file": "ca.pem", "server_name": "elsewhere.internal"}, "not accepted: Hostname mismatch"),
        ({"ca_file": "gone.pem"}, r"tls_config: .*gone\.pem: No such file"),
        ({"ca_file": "ca.key"}, r"tls_config: .*ca\.key: "),
        ({"cert_file": "client.pem", "key_file": "ca.key"}, r"client\.pem and .*ca\.key: .*MISMATCH"),
    ],
    ids=["unknown authority", "other authority", "other name", "no file", "no certificate", "other key"],
)  # fmt: skip
def test_what_is_wrong_with_tls_is_told(
    certificates: Certificates, tmp_path: Path, config: dict[str, str], told: str
) -> None:
    with (
        serving(answer, certificates.context()) as served,
        pytest.raises(ScrapeError, match=told) as caught,
    ):
        fetch(served, tmp_path, tls(certificates, **config))
    assert caught.value.result == "tls"
    assert served.headers == []


def test_a_target_that_needs_a_client_certificate_and_one_without_tls_are_told(
    certificates: Certificates, tmp_path: Path
) -> None:
    config = tls(certificates, ca_file="ca.pem")
    with (
        serving(answer, certificates.context(client=ssl.CERT_REQUIRED)) as served,
        pytest.raises(ScrapeError, match=r"(?i)client certificate|certificate.required"),
    ):
        fetch(served, tmp_path, config)
    with serving(answer) as plain, pytest.raises(ScrapeError, match=plain.address):
        fetch(Served(plain.port, "https"), tmp_path, config)


def test_the_name_of_a_certificate_may_be_given_and_checks_may_be_switched_off(
    certificates: Certificates, tmp_path: Path
) -> None:
    with serving(answer, certificates.context("named")) as served:
        assert fetch(served, tmp_path, tls(certificates, ca_file="ca.pem", server_name="shop.internal")) == PROFILE
        assert fetch(served, tmp_path, tls(certificates, insecure_skip_verify="true")) == PROFILE


def test_without_tls_nothing_of_tls_config_is_needed(tmp_path: Path) -> None:
    with serving(answer) as served:
        assert fetch(served, tmp_path, "tls_config: {ca_file: /nowhere/ca.pem}") == PROFILE


def test_a_token_is_read_for_each_request(tmp_path: Path) -> None:
    token = tmp_path / "token"
    with serving(answer) as served:
        for text in ("first\n", "second"):
            token.write_text(text)
            assert fetch(served, tmp_path, f"authorization: {{credentials_file: {token}}}") == PROFILE
        token.unlink()
        with pytest.raises(ScrapeError, match=r"No such file.*token"):
            fetch(served, tmp_path, f"authorization: {{credentials_file: {token}}}")
    assert served.authorizations == ["Bearer first", "Bearer second"]


def test_credentials_do_not_follow_a_redirect_to_another_server(certificates: Certificates, tmp_path: Path) -> None:
    config = tls(certificates, ca_file="ca.pem", cert_file="client.pem", key_file="client.key")
    context = certificates.context(client=ssl.CERT_OPTIONAL)
    back: list[str] = []

    def send_back(request: Request) -> None:
        request.answer(status=307, Location=back[0])

    def redirect(request: Request) -> None:
        if request.path == "/profile":
            request.answer(status=302, Location="/here")
        elif request.path == "/here":
            request.answer(status=302, Location=f"{other.url}/there")
        else:
            answer(request)

    with serving(send_back, context) as other, serving(redirect, context) as first:
        back.append(f"{first.url}/back")
        assert fetch(first, tmp_path, f"{config}, bearer_token: secret") == PROFILE
        with pytest.raises(ScrapeError, match="it answers 302"):
            fetch(first, tmp_path, f"{config}, follow_redirects: false")
    assert (other.authorizations, other.client_names) == ([None], [None])
    assert first.authorizations == ["Bearer secret", "Bearer secret", None, None]
    assert first.client_names == ["client", "client", None, "client"]


def test_credentials_follow_a_redirect_from_http_to_https_of_the_same_host(
    certificates: Certificates, tmp_path: Path
) -> None:
    def upgrade(request: Request) -> None:
        request.answer(status=301, Location=f"{secure.url}/profile")

    with serving(answer, certificates.context()) as secure, serving(upgrade) as plain:
        job = f"{tls(certificates, ca_file='ca.pem')}, authorization: {{credentials: secret}}"
        assert fetch(plain, tmp_path, job) == PROFILE
    assert secure.authorizations == ["Bearer secret"]


@pytest.mark.parametrize(
    ("status", "headers", "body", "result", "told"),
    [
        (200, {"Content_Length": 1000}, PROFILE, "unreachable", "Not enough data to satisfy content length"),
        (200, {"Content_Length": 10**12}, PROFILE, "too_large", "more than 1000000 bytes"),
        (200, {"Content_Length": "many"}, PROFILE, "unreachable", "(?i)content-length"),
        (302, {"Location": "mailto:somebody"}, b"", "redirects", "redirects to 'mailto:somebody'"),
    ],
    ids=["too few bytes", "absurd", "no number", "no address"],
)
def test_answers_that_are_not_what_they_say_are_told(
    tmp_path: Path, status: int, headers: dict[str, object], body: bytes, result: str, told: str
) -> None:
    def lie(request: Request) -> None:
        request.answer(body, status, **headers)

    with serving(lie) as served, pytest.raises(ScrapeError, match=told) as caught:
        fetch(served, tmp_path)
    assert caught.value.result == result


def test_a_target_that_says_nothing_ends_in_time(tmp_path: Path) -> None:
    with (
        serving(lambda request: request.rfile.read(1)) as served,
        pytest.raises(ScrapeError, match="no complete answer") as caught,
    ):
        fetch(served, tmp_path, timeout="200ms")
    assert caught.value.result == "timeout"


@pytest.mark.parametrize(
    ("host", "to", "inward"),
    [
        ("192.0.2.1", "127.0.0.1", True),
        ("192.0.2.1", "localhost", True),
        ("192.0.2.1", "169.254.169.254", True),
        ("192.0.2.1", "::ffff:169.254.169.254", True),
        ("192.0.2.1", "0.0.0.0", True),
        ("192.0.2.1", "fd00:ec2::254", True),
        ("192.0.2.1", "100.100.100.200", True),
        ("192.0.2.1", "198.51.100.1", False),
        ("169.254.1.1", "169.254.1.1", False),
        ("localhost", "127.0.0.2", False),
    ],
)
def test_a_server_has_us_ask_nobody_on_our_own_machine_or_link(host: str, to: str, inward: bool) -> None:
    check = check_not_inward(URL.build(scheme="http", host=host), URL.build(scheme="http", host=to))
    with pytest.raises(ScrapeError, match="an address of this machine") if inward else contextlib.nullcontext():
        asyncio.run(check)
