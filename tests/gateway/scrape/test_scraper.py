"""Targets are scraped over HTTP, also some that behave badly."""

import contextlib
import dataclasses
import gzip
import http.server
import json
import logging
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.settings import GatewaySettings
from icestream.messages.raw import decode_raw
from icestream.topics import RAW
from tests.gateway.profiles import simple
from tests.gateway.scrape.scraping import metric, scraping
from tests.gateway.scrape.servers import Certificates, Request, serving
from tests.pipeline.reading import messages
from tests.ports import free_port
from tests.waiting import wait_until


class Targets(http.server.BaseHTTPRequestHandler):
    """One path for each way to behave."""

    def do_GET(self) -> None:
        if self.path.startswith("/slow"):
            self._start(200)
            while True:  # until the scraper has gone
                self.wfile.write(b"x")
                self.wfile.flush()
                time.sleep(0.05)
        elif self.path == "/endless":
            self._start(200)
            while True:
                self.wfile.write(bytes(100_000))
        elif self.path == "/redirect":
            self._start(302, {"Location": "/redirect"})
        elif self.path == "/bomb":
            self._answer(gzip.compress(bytes(50_000_000)))
        elif self.path == "/secret":
            known = self.headers["Authorization"] == "Basic dTpwdw=="
            self._answer(good(), 200 if known else 401)
        elif self.path == "/good":
            self._answer(good())
        elif self.path == "/broken":
            self._answer(b"\xff" * 100)
        else:
            self._start(404)

    def _start(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()

    def _answer(self, body: bytes, status: int = 200) -> None:
        self._start(status)
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Scrapers go away."""


@pytest.fixture
def target() -> Iterator[str]:
    server = Server(("127.0.0.1", 0), Targets)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def good() -> bytes:
    return simple({("main", "work"): (3, 30_000_000)}).SerializeToString()


def job_of(name: str, target: str, path: str, interval: str) -> str:
    """A job of one target with one profile."""
    off = " ".join(f"{kind}: {{enabled: false}}," for kind in ("process_cpu", "memory", "goroutine", "mutex", "block"))
    return (
        f"{{job_name: {name}, scrape_interval: {interval}, scrape_timeout: 1m,"
        f" static_configs: [{{targets: ['{target}']}}],"
        f" profiling_config: {{pprof_config: {{{off} own: {{path: {path}}}}}}}}}"
    )


BAD = {
    "slow": "timeout",
    "endless": "too_large",
    "redirect": "redirects",
    "bomb": "refused",
    "broken": "refused",
    "none": "status",
}


def test_bad_targets_end_in_time_and_harm_no_others(
    target: str, settings: GatewaySettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    off = " ".join(f"{name}: {{enabled: false}}," for name in ("process_cpu", "memory", "goroutine", "mutex", "block"))
    bad = "".join(
        f"""
          - job_name: {name}
            scrape_interval: 200ms
            scrape_timeout: {"300ms" if name == "slow" else "1m"}
            static_configs: [{{targets: ["{target}"]}}]
            profiling_config: {{pprof_config: {{{off} own: {{path: /{name}}}}}}}
        """
        for name in BAD
    )
    secret = f"""
          - job_name: good
            scrape_interval: 200ms
            scrape_timeout: 1m
            static_configs: [{{targets: ["{target}"]}}]
            file_sd_configs: [{{files: ["{tmp_path}/*.targets"]}}]
            basic_auth: {{username: u, password_file: {tmp_path}/password}}
            profiling_config: {{pprof_config: {{{off} own: {{path: /secret}}}}}}
        """
    (tmp_path / "password").write_text("pw\n")
    (tmp_path / "more.targets").write_text('[{"targets": ["127.0.0.1:1"]}]')

    def all_went() -> bool:
        results = [*BAD.items(), ("good", "ok"), ("good", "unreachable")]  # of one target, and of the other
        return all(metric("scrapes_total", job=job, result=result) >= 2 for job, result in results)

    with scraping(settings, tmp_path / "jobs.yaml", f"scrape_configs:{bad}{secret}"):
        wait_until(all_went)
        assert metric("scrape_targets", job="good") == 2
        assert metric("scrape_failing", job="good") == 1  # nobody listens at the other one
        assert metric("scrape_failing", job="slow") == 1
        stopping = time.monotonic()
    assert time.monotonic() - stopping < 60
    assert metric("scrape_failing", job="slow") == 0
    kinds = {decode_raw(message.value()).profile_type for message in messages(settings, RAW)}
    assert kinds == {"own:cpu:nanoseconds:cpu:nanoseconds"}
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert sum("scrape job none:" in text and "answers 404" in text for text in told) == 1  # once, not each time


def test_targets_that_send_a_little_at_a_time_take_no_places_from_others(
    target: str, settings: GatewaySettings, tmp_path: Path
) -> None:
    one_at_once = dataclasses.replace(settings, gateway_scrape_at_once=1)
    slow = job_of("beside-slow", target, "/slow", "100ms")
    with scraping(
        one_at_once,
        tmp_path / "jobs.yaml",
        f"scrape_configs: [{slow}, {job_of('beside-good', target, '/good', '1s')}]",
    ):
        wait_until(lambda: metric("scrape_bytes_total", job="beside-slow") > 0)
        wait_until(lambda: metric("scrapes_total", job="beside-good", result="ok") >= 2)


def test_targets_that_a_server_lists_are_scraped_over_tls(settings: GatewaySettings, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    tls = f"tls_config: {{ca_file: {certificates.file('ca.pem')}"
    own = f"cert_file: {certificates.file('client.pem')}, key_file: {certificates.file('client.key')}"
    with (
        serving(lambda request: request.answer(good()), certificates.context(client=ssl.CERT_REQUIRED)) as target,
        serving(
            lambda request: request.answer(json.dumps([{"targets": [target.address]}]).encode()),
            certificates.context(),
        ) as lister,
    ):
        job = job_of("listed", "", "/own", "200ms").replace(
            "static_configs: [{targets: ['']}]",
            f"scheme: https, {tls}, {own}}}, authorization: {{credentials: of-targets}}, http_sd_configs:"
            f" [{{url: '{lister.url}/', {tls}}}, authorization: {{credentials: of-lister}}}}]",
        )
        with scraping(settings, tmp_path / "jobs.yaml", f"scrape_configs: [{job}]"):
            wait_until(lambda: metric("scrapes_total", job="listed", result="ok") >= 1, lambda: target)
    assert {*target.authorizations} == {"Bearer of-targets"}
    assert {*target.client_names} == {"client"}
    assert {*lister.authorizations} == {"Bearer of-lister"}
    kinds = {decode_raw(message.value()).profile_type for message in messages(settings, RAW)}
    assert kinds == {"own:cpu:nanoseconds:cpu:nanoseconds"}


def test_targets_beyond_the_limit_are_left_out_and_told(target: str, settings: GatewaySettings, tmp_path: Path) -> None:
    few = dataclasses.replace(settings, gateway_scrape_targets=2)
    job = f"scrape_configs: [{{job_name: many, static_configs: [{{targets: ['{target}', 'a:1', 'b:1']}}]}}]"
    with scraping(few, tmp_path / "jobs.yaml", job):
        wait_until(lambda: metric("scrape_targets_left_out", job="many") == 1)
        assert metric("scrape_targets", job="many") == 2


def test_which_targets_are_left_out_is_not_left_to_chance_if_they_differ_in_parameters_only(
    settings: GatewaySettings, tmp_path: Path
) -> None:
    asked: set[str] = set()

    def answer(request: Request) -> None:
        asked.add(request.path)
        request.answer(b"no profile")

    with serving(answer) as served:
        groups = [{"targets": [served.address], "labels": {"__param_of": f"{number:02}"}} for number in range(50)]
        profiles = {name: {"enabled": False} for name in ("process_cpu", "goroutine", "mutex", "block")}
        few = dataclasses.replace(settings, gateway_scrape_targets=5)
        one = {
            "job_name": "ties", "scrape_interval": "1s", "static_configs": groups,
            "profiling_config": {"pprof_config": profiles},
        }  # fmt: skip
        with scraping(few, tmp_path / "jobs.yaml", json.dumps({"scrape_configs": [one]})):
            wait_until(lambda: len(asked) == 5)
    assert asked == {f"/debug/pprof/allocs?of={number:02}" for number in range(5)}


def test_while_kafka_is_away_scraping_goes_on_and_what_ends_with_the_gateway_is_counted(
    target: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    away = GatewaySettings(kafka=f"127.0.0.1:{free_port()}", gateway_ack_s=0.2)
    before = metric("scrape_dropped_total")
    with scraping(away, tmp_path / "jobs.yaml", f"scrape_configs: [{job_of('away', target, '/good', '100ms')}]"):
        wait_until(lambda: metric("scrapes_total", job="away", result="ok") >= 5)
        assert metric("scrape_waiting_bytes") > 0
        assert metric("scrape_failing", job="away") == 0  # the target does not fail
        wait_until(lambda: "scraped profiles wait in memory" in caplog.text)
    assert metric("scrape_dropped_total") >= before + 5
    assert metric("scrape_waiting_bytes") == 0
    assert caplog.text.count("scraped profiles wait in memory") == 1


@contextlib.contextmanager
def scraping_kept(settings: GatewaySettings, folder: Path, name: str, keep: str) -> Iterator[None]:
    """Scrapes a target that has objects and bytes in use, with a job that keeps some sample types."""
    made = simple(
        {("main", "work"): (3, 4)},
        types=[("inuse_objects", "count"), ("inuse_space", "bytes")],
        period_type=("space", "bytes"),
    )

    def answer(request: Request) -> None:
        made.time_nanos = time.time_ns()
        request.answer(made.SerializeToString())

    with serving(answer) as served:
        off = " ".join(f"{kind}: {{enabled: false}}," for kind in ("process_cpu", "goroutine", "mutex", "block"))
        job = (
            f"{{job_name: {name}, scrape_interval: 100ms, scrape_timeout: 1m,"
            f" static_configs: [{{targets: ['{served.address}']}}], profiling_config: {{pprof_config: {{{off}"
            f" memory: {{keep_sample_type: [{keep}]}}}}}}}}"
        )
        with scraping(settings, folder / "jobs.yaml", f"scrape_configs: [{job}]"):
            yield


def test_sample_types_that_a_job_does_not_keep_are_left_out(settings: GatewaySettings, tmp_path: Path) -> None:
    with scraping_kept(settings, tmp_path, "kept", "{type: inuse_space, unit: bytes}"):
        wait_until(lambda: metric("scrapes_total", job="kept", result="ok") >= 2)
    kinds = {decode_raw(message.value()).profile_type for message in messages(settings, RAW)}
    assert kinds == {"memory:inuse_space:bytes:space:bytes"}


def test_a_job_that_keeps_nothing_of_a_profile_is_told_what_the_profile_has(
    settings: GatewaySettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with scraping_kept(settings, tmp_path, "misspelled", "{type: inuse_space}"):
        wait_until(lambda: metric("scrapes_total", job="misspelled", result="sample_type") >= 1, lambda: caplog.text)
        assert metric("scrape_failing", job="misspelled") == 1
    assert "keeps nothing of memory, which has inuse_objects/count, inuse_space/bytes" in caplog.text
    assert metric("scrapes_total", job="misspelled", result="ok") == 0
