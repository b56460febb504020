"""What `icestream up` runs, and how."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi import FastAPI

from gateway.settings import GatewaySettings
from icestream.http.server import Server
from icestream.settings import KafkaSettings, SettingError
from standalone.settings import UpSettings
from standalone.supervisor.local_pipeline import LocalPipeline, StartError
from tests.gateway.scrape.servers import Certificates
from tests.waiting import wait_until


def on_any_port(data: Path) -> UpSettings:
    any_port = "127.0.0.1:0"
    return UpSettings(
        data=data, collector=False, listen=any_port, metrics_listen=any_port, gateway_listen=any_port,
        gateway_grpc_listen=any_port,
    )  # fmt: skip


def test_it_is_not_ready_before_its_parts_are_started(tmp_path: Path) -> None:
    with LocalPipeline(on_any_port(tmp_path)) as pipeline:
        assert pipeline.not_ready() == "not all parts are started yet"


@pytest.mark.parametrize(("ack_s", "more_than"), [("", 10.0), ("60", 60.0)])
def test_the_gateway_has_time_to_end_for_what_waits_for_kafka(tmp_path: Path, ack_s: str, more_than: float) -> None:
    with LocalPipeline(on_any_port(tmp_path)) as pipeline:
        stop_s = {part.name: part.stop_s for part in pipeline._parts({"ICESTREAM_GATEWAY_ACK_S": ack_s})}
    assert stop_s["gateway"] > more_than
    assert stop_s["store"] < 10


def test_the_gateway_scrapes_what_the_file_of_up_says(tmp_path: Path) -> None:
    settings = UpSettings(data=tmp_path, gateway_scrape="scrape.yaml")
    environ = LocalPipeline(settings)._environ(KafkaSettings())
    assert GatewaySettings.load(environ).gateway_scrape == "scrape.yaml"


@pytest.mark.parametrize(
    ("text", "told"), [(None, "No such file"), ("scrape_config: []", "no field 'scrape_config'")], ids=["none", "typo"]
)
def test_a_mistake_in_the_file_of_scrape_jobs_is_told_before_anything_runs(
    tmp_path: Path, text: str | None, told: str
) -> None:
    file = tmp_path / "scrape.yaml"
    if text:
        file.write_text(text)
    settings = UpSettings(data=tmp_path / "data", gateway_scrape=str(file))
    with pytest.raises(SettingError, match=told), LocalPipeline(settings):
        raise AssertionError("it runs")
    assert not settings.folder.exists()


def test_a_gateway_with_tls_is_asked_over_tls(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    files = {"CERT": certificates.file("named.pem"), "KEY": certificates.file("named.key")}  # not for the loopback
    environ = {f"ICESTREAM_GATEWAY_TLS_{name}_FILE": file for name, file in files.items()}
    app = FastAPI()
    app.get("/readyz")(lambda: {"status": "ready"})
    with LocalPipeline(on_any_port(tmp_path)) as pipeline:
        ask = {bool(env): asks_of_gateway(pipeline, env) for env in (environ, {})}
        server = Server(app, pipeline._addresses["gateway"], certificates.context("named"))
        server.start()
        wait_until(lambda: ask[True]() is None)
        assert ask[False]() == "does not answer yet"
        server.close()
        assert ask[True]() == "does not answer yet"


def asks_of_gateway(pipeline: LocalPipeline, environ: dict[str, str]) -> Callable[[], str | None]:
    (gateway,) = (part for part in pipeline._parts(environ) if part.name == "gateway")
    return gateway.ask


def test_a_gateway_that_cannot_be_asked_is_told_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICESTREAM_GATEWAY_TLS_CLIENT_CA_FILE", "ca.pem")
    with pytest.raises(StartError, match="ICESTREAM_GATEWAY_TLS_CLIENT_CA_FILE"), LocalPipeline(on_any_port(tmp_path)):
        raise AssertionError("it runs")
