"""TLS of the gateway, with real clients: Python's, gRPC's, and OpenTelemetry's exporters."""

import http.client
import logging
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace.export import SpanExporter

from gateway.settings import GatewaySettings
from gateway.tls import Tls
from icestream import cli
from icestream.messages.raw import decode_raw
from icestream.settings import KafkaSettings, SettingError
from icestream.topics import RAW
from tests.gateway.profiles import simple
from tests.gateway.scrape.servers import Certificates
from tests.gateway.served import Ports, serve_on_ports
from tests.gateway.test_opentelemetry_sdk import check, trace_a_request
from tests.pipeline.reading import messages
from tests.ports import free_port
from tests.waiting import PATIENCE_S, wait_until

FIELDS = {"cert": "gateway_tls_cert_file", "key": "gateway_tls_key_file", "client_ca": "gateway_tls_client_ca_file"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def settings(in_process_broker: KafkaSettings, certificates: Certificates, tmp_path: Path) -> GatewaySettings:
    """With a certificate in files of its own."""
    made = GatewaySettings(
        kafka=in_process_broker.kafka,
        gateway_ack_s=PATIENCE_S,
        gateway_grpc_listen="127.0.0.1:0",
        gateway_tls_cert_file=str(tmp_path / "tls.crt"),
        gateway_tls_key_file=str(tmp_path / "tls.key"),
    )
    put_certificate(made, certificates, "server")
    return made


@pytest.fixture
def ports(settings: GatewaySettings) -> Iterator[Ports]:
    with serve_on_ports(settings) as ports:
        yield ports


def put_certificate(settings: GatewaySettings, certificates: Certificates, name: str) -> None:
    shutil.copy(certificates.file(f"{name}.pem"), settings.gateway_tls_cert_file)
    shutil.copy(certificates.file(f"{name}.key"), settings.gateway_tls_key_file)


class Clients:
    """Two clients that trust a CA, and may have a certificate; each returns why it was not served, or ""."""

    def __init__(self, certificates: Certificates, ca: str = "ca", own: str = "") -> None:
        self._context = ssl.create_default_context(cafile=certificates.file(f"{ca}.pem"))
        self._pem = [Path(certificates.file(f"{ca}.pem")).read_bytes()]
        if own:
            files = [certificates.file(f"{own}.{end}") for end in ("pem", "key")]
            self._context.load_cert_chain(*files)
            self._pem += [Path(file).read_bytes() for file in reversed(files)]

    def http(self, ports: Ports) -> str:
        connection = http.client.HTTPSConnection(ports.http, context=self._context, timeout=PATIENCE_S)
        try:
            connection.request("GET", "/healthz")
            assert connection.getresponse().status == 200
        except OSError as error:
            return str(error) or repr(error)
        finally:
            connection.close()
        return ""

    def grpc(self, ports: Ports) -> str:
        with grpc.secure_channel(ports.grpc, grpc.ssl_channel_credentials(*self._pem)) as channel:
            try:
                HealthStub(channel).Check(HealthCheckRequest(), timeout=PATIENCE_S)
            except grpc.RpcError as error:
                return f"{error.code()}: {error.details()}"  # type: ignore[attr-defined]
        return ""


Asks = Callable[[Clients, Ports], str]
both = pytest.mark.parametrize("asks", [Clients.http, Clients.grpc], ids=["http", "grpc"])


def test_a_profile_is_pushed_and_health_and_metrics_are_on_the_same_listener(
    ports: Ports, settings: GatewaySettings, certificates: Certificates
) -> None:
    context = ssl.create_default_context(cafile=certificates.file("ca.pem"))
    connection = http.client.HTTPSConnection(ports.http, context=context, timeout=PATIENCE_S)
    profile = simple({("main", "work"): (3, 30_000_000)})
    profile.time_nanos = time.time_ns()
    for method, path, body in (
        ("POST", "/api/v1/ingest/pprof?service=checkout", profile.SerializeToString()),
        ("GET", "/metrics", b""),
        ("GET", "/healthz", b""),
    ):  # fmt: skip
        connection.request(method, path, body)
        answer = connection.getresponse()
        assert (answer.read() != b"", answer.status) == (True, 200)
    connection.close()
    (batch,) = (decode_raw(message.value()) for message in messages(settings, RAW))
    assert dict(batch.series[0])["service"] == "checkout"


def exporters(ports: Ports) -> dict[str, Callable[[], SpanExporter]]:
    return {
        "http": lambda: HttpExporter(f"https://{ports.http}/v1/traces", timeout=PATIENCE_S),
        "grpc": lambda: GrpcExporter(f"https://{ports.grpc}", timeout=PATIENCE_S),
    }


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_spans_of_opentelemetry_come_with_a_certificate_of_their_sender(
    settings: GatewaySettings, certificates: Certificates, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # requests prefers them to the CA of its session
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", certificates.file("ca.pem"))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", certificates.file("client.pem"))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", certificates.file("client.key"))
    with serve_on_ports(replace(settings, gateway_tls_client_ca_file=certificates.file("ca.pem"))) as ports:
        trace_a_request(exporters(ports)[protocol]())
    check(settings)


@both
def test_a_client_that_trusts_another_ca_goes_away(ports: Ports, certificates: Certificates, asks: Asks) -> None:
    assert asks(Clients(certificates), ports) == ""
    assert "CERTIFICATE_VERIFY_FAILED" in asks(Clients(certificates, "other-ca"), ports)


def test_clients_without_tls_are_not_served(ports: Ports) -> None:
    connection = http.client.HTTPConnection(ports.http, timeout=PATIENCE_S)
    connection.request("GET", "/healthz")
    with pytest.raises((ConnectionError, http.client.BadStatusLine)):
        connection.getresponse()
    connection.close()
    with grpc.insecure_channel(ports.grpc) as channel, pytest.raises(grpc.RpcError) as refused:
        HealthStub(channel).Check(HealthCheckRequest(), timeout=PATIENCE_S)
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE  # type: ignore[attr-defined]


@both
def test_only_clients_with_a_certificate_of_the_ca_are_served_if_one_is_demanded(
    settings: GatewaySettings, certificates: Certificates, tmp_path: Path, asks: Asks
) -> None:
    ca = Path(shutil.copy(certificates.file("ca.pem"), tmp_path / "clients.pem"))
    none, client, stranger = (Clients(certificates, own=own) for own in ("", "client", "other-ca"))
    with serve_on_ports(replace(settings, gateway_tls_client_ca_file=str(ca))) as ports:
        assert asks(client, ports) == ""
        assert asks(none, ports) != ""
        assert asks(stranger, ports) != ""
        shutil.copy(certificates.file("other-ca.pem"), ca)
        assert asks(stranger, ports) == ""
        assert asks(client, ports) != ""
        assert asks(none, ports) != ""


def certificate_of(address: str, certificates: Certificates) -> str:
    """The common name that a server shows to a new connection."""
    context = ssl.create_default_context(cafile=certificates.file("ca.pem"))
    context.check_hostname = False
    context.set_alpn_protocols(["h2", "http/1.1"])
    host, _, port = address.partition(":")
    with (
        socket.create_connection((host, int(port)), PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        subject = (connection.getpeercert() or {})["subject"]
    return str(dict(pair for (pair,) in subject)["commonName"])


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_certificate_is_replaced_while_the_gateway_runs(
    ports: Ports, settings: GatewaySettings, certificates: Certificates, caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    caplog.set_level(logging.INFO, "gateway.tls")
    address, key = getattr(ports, protocol), Path(settings.gateway_tls_key_file)
    assert certificate_of(address, certificates) == "server"
    put_certificate(settings, certificates, "named")
    assert certificate_of(address, certificates) == "named"
    shutil.copy(certificates.file("server.pem"), settings.gateway_tls_cert_file)  # its key has not come yet
    for _ in range(2):
        assert certificate_of(address, certificates) == "named"
    key.unlink()
    assert certificate_of(address, certificates) == "named"
    shutil.copy(certificates.file("server.key"), key)
    assert certificate_of(address, certificates) == "server"
    told = [record.levelname for record in caplog.records if record.name == "gateway.tls"]
    assert told == ["INFO", "WARNING", "WARNING", "INFO"]


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"cert": "none.pem"}, "gateway_tls_cert_file: cannot read .*none.pem: No such file"),
        ({"key": "."}, "gateway_tls_key_file: cannot read .*: Is a directory"),
        ({"cert": "server.key"}, "gateway_tls_cert_file: expected PEM with a CERTIFICATE, .* in .*server.key"),
        ({"key": "server.pem"}, "gateway_tls_key_file: expected PEM with a PRIVATE KEY, .* in .*server.pem"),
        ({"key": "client.key"}, "gateway_tls_key_file: expected the key of .*server.pem, .*another one in .*client"),
        ({"key": "rsa.key"}, "gateway_tls_key_file: expected the key of .*server.pem, .*another one in .*rsa.key"),
        ({"key": "locked.key"}, "gateway_tls_key_file: .* without a passphrase, .*locked.key"),
        ({"key": "damaged.key"}, "gateway_tls_key_file: .*, or a damaged file"),
        ({"client_ca": "none.pem"}, "gateway_tls_client_ca_file: cannot read .*none.pem"),
        ({"client_ca": "damaged.pem"}, "gateway_tls_client_ca_file: expected certificates in .*damaged.pem"),
        ({"key": ""}, "gateway_tls_cert_file, gateway_tls_key_file: expected both or none"),
        ({"cert": "", "key": "", "client_ca": "ca.pem"}, "gateway_tls_client_ca_file: expected a gateway_tls_cert"),
    ],
    ids=lambda value: " ".join(f"{name}={file}" for name, file in value.items()) if isinstance(value, dict) else "",
)  # fmt: skip
def test_files_that_cannot_be_used_are_named_at_the_start(
    certificates: Certificates, files: dict[str, str], told: str
) -> None:
    folder = certificates.folder
    if "locked.key" in files.values():
        openssl = "openssl pkey -in server.key -aes256 -passout pass:secret -out locked.key"
        subprocess.run(openssl.split(), cwd=folder, check=True)
    if "rsa.key" in files.values():
        subprocess.run(["openssl", "genrsa", "-out", "rsa.key", "2048"], cwd=folder, check=True, capture_output=True)
    for kind in ("key", "pem"):
        good = (folder / f"server.{kind}").read_text()
        (folder / f"damaged.{kind}").write_text(good.replace("\n", "\n!", 2))
    given = {"cert": "server.pem", "key": "server.key"} | files
    with pytest.raises(SettingError, match=told):
        Tls(GatewaySettings(**{FIELDS[name]: file and certificates.file(file) for name, file in given.items()}))


def test_the_command_ends_with_one_line(certificates: Certificates, capsys: pytest.CaptureFixture[str]) -> None:
    certificate, key = certificates.file("server.pem"), certificates.file("client.key")
    assert cli.main(["gateway", "--gateway-tls-cert-file", certificate, "--gateway-tls-key-file", key]) == 2
    assert "icestream gateway: gateway_tls_key_file: expected the key" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, ""], ids=["missing", "empty"])
def test_a_file_that_may_come_later_is_no_impossible_setting(
    certificates: Certificates, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    certificate, key = certificates.file("server.pem"), tmp_path / "later.key"
    if content is not None:
        key.write_text(content)
    assert cli.main(["gateway", "--gateway-tls-cert-file", certificate, "--gateway-tls-key-file", str(key)]) == 1
    assert "icestream gateway: gateway_tls_key_file: " in capsys.readouterr().err


def test_the_command_serves_http_and_grpc_with_tls(settings: GatewaySettings, certificates: Certificates) -> None:
    ports, clients = Ports(f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"), Clients(certificates)
    given = replace(settings, gateway_listen=ports.http, gateway_grpc_listen=ports.grpc)
    program = subprocess.Popen(
        [sys.executable, "-m", "icestream.cli", "gateway"], env={**os.environ, **given.environ()}
    )  # fmt: skip
    try:
        wait_until(lambda: clients.http(ports) == "" and clients.grpc(ports) == "", lambda: program.poll())
        program.send_signal(signal.SIGTERM)
        assert program.wait(PATIENCE_S) == 0
    finally:
        program.kill()
        program.wait()
