"""A real OpenTelemetry Collector, with the configuration in docs/gateway.md, between senders and a gateway.

`make soak` runs it: the build takes five CPU minutes and fetches 300 MB of Go modules the first time, and the Collector
waits five seconds before it sends again.
"""

import contextlib
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.error import URLError

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

from gateway.errors import unavailable
from gateway.publisher import BatchPublisher
from gateway.settings import GatewaySettings
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW
from icestream.v1.raw_pb2 import RawBatch
from tests.gateway.scrape.servers import Certificates
from tests.gateway.served import Ports, serve_on_ports
from tests.gateway.test_opentelemetry_sdk import check, trace_a_request
from tests.gateway.test_otlp_topic import profiles
from tests.go import needs_go
from tests.pipeline.reading import messages
from tests.ports import free_port
from tests.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.soak, needs_go]

SOURCE = Path(__file__).parent / "otelcol"
DOCS = Path(__file__).parents[2] / "docs" / "gateway.md"
EXPORTERS = ("otlp_grpc/icestream", "otlp_http/icestream", "kafka/icestream")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("otelcol") / "otelcol"
    subprocess.run(["go", "build", "-o", str(built), "."], cwd=SOURCE, check=True, timeout=1800)
    return built


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


@dataclass(frozen=True)
class Collector:
    grpc: str
    http: str
    log: Path


@pytest.fixture
def settings(in_process_broker: KafkaSettings) -> GatewaySettings:
    return GatewaySettings(
        kafka=in_process_broker.kafka,
        gateway_grpc_listen="127.0.0.1:0",
        gateway_spans_topic="otlp_spans",
        gateway_profiles_topic="otlp_profiles",
    )


@pytest.fixture
def gateway(settings: GatewaySettings) -> Iterator[Ports]:
    with serve_on_ports(settings) as ports:
        yield ports


@pytest.fixture
def collector(program: Path, gateway: Ports, settings: GatewaySettings, tmp_path: Path) -> Iterator[Collector]:
    with run_collector(program, gateway, settings, tmp_path, EXPORTERS) as collector:
        yield collector


@contextlib.contextmanager
def run_collector(
    program: Path, gateway: Ports, settings: GatewaySettings, folder: Path, exporters: Sequence[str], tls: str = ""
) -> Iterator[Collector]:
    """One that sends all that it gets by every exporter. `tls`: the setting of that name of those that do not send to
    Kafka."""
    found = Collector(f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", folder / "log")
    config = folder / "otelcol.yaml"
    config.write_text(_config(found, gateway, settings, exporters, tls))
    with open(found.log, "wb") as log:
        process = subprocess.Popen(
            [str(program), "--config", str(config), "--feature-gates", "service.profilesSupport"],
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: process.poll() is not None or _answers(found.http), found.log.read_text)
        assert process.poll() is None, found.log.read_text()
        yield found
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
    assert "Dropping data" not in found.log.read_text()


def _config(
    collector: Collector, gateway: Ports, settings: GatewaySettings, exporters: Sequence[str], tls: str
) -> str:  # fmt: skip
    """The block of the docs with other addresses, and all these exporters in all pipelines."""
    (config,) = re.findall(r"^```yaml\n(receivers:.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    over_tls = (
        ("tls: {insecure: true}", f"tls: {tls}"),
        ("http://127.0.0.1:4040", f"https://127.0.0.1:4040\n    tls: {tls}"),
    )
    for theirs, ours in (
        *(over_tls if tls else ()),
        ("127.0.0.1:14317", collector.grpc),
        ("127.0.0.1:14318", collector.http),
        ("127.0.0.1:4317", gateway.grpc),
        ("127.0.0.1:4040", gateway.http),
        ("127.0.0.1:9092", settings.kafka),
        ("exporters: [otlp_grpc/icestream]", f"exporters: [{', '.join(exporters)}]"),
        ("service:\n", "service:\n  telemetry: {metrics: {level: none}}\n"),  # which has a fixed port
    ):
        assert theirs in config, theirs
        config = config.replace(theirs, ours)
    return str(config)


def _answers(address: str) -> bool:
    try:
        urllib.request.urlopen(f"http://{address}/", timeout=PATIENCE_S)
    except URLError as error:
        return hasattr(error, "code")  # an answer, though not 200
    return True


def post(address: str, body: bytes) -> None:
    """Profiles."""
    request = urllib.request.Request(
        f"http://{address}/v1development/profiles", body, {"content-type": "application/x-protobuf"}
    )
    assert urllib.request.urlopen(request, timeout=PATIENCE_S).status == 200


def count(settings: GatewaySettings, topic: str) -> int:
    return sum(1 for _ in messages(settings, topic))


def contents(settings: GatewaySettings) -> set[bytes]:
    """The different batches, with their IDs, whenever they were published."""
    batches = [RawBatch.FromString(message.value()) for message in messages(settings, RAW)]
    for batch in batches:
        batch.ClearField("published_unix_nano")
    return {batch.SerializeToString(deterministic=True) for batch in batches}


def test_what_a_collector_sends_is_what_it_got(collector: Collector, gateway: Ports, settings: GatewaySettings) -> None:
    made = profiles("m1", time.time_ns() - 10**10).data.SerializeToString()
    post(gateway.http, made)
    post(collector.http, made)
    wait_until(lambda: count(settings, RAW) == 1 + len(EXPORTERS), collector.log.read_text)
    assert len(contents(settings)) == 1

    trace_a_request(GrpcExporter(collector.grpc, insecure=True, timeout=PATIENCE_S))
    wait_until(lambda: count(settings, ACTIVITY) == 2 * len(EXPORTERS), collector.log.read_text)
    check(settings, len(EXPORTERS))


def test_a_collector_sends_again_what_kafka_did_not_take(
    collector: Collector, settings: GatewaySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, failures = BatchPublisher.publish, list(EXPORTERS)

    async def fails_at_first(self: BatchPublisher, key: bytes, values: Sequence[bytes], topic: str = RAW) -> None:
        if failures:
            failures.pop()
            raise unavailable("Kafka did not take it")
        await publish(self, key, values, topic)

    monkeypatch.setattr(BatchPublisher, "publish", fails_at_first)
    trace_a_request(HttpExporter(f"http://{collector.http}/v1/traces", timeout=PATIENCE_S))
    wait_until(lambda: count(settings, ACTIVITY) == 2 * len(EXPORTERS), collector.log.read_text)
    check(settings, len(EXPORTERS))
    assert not failures


def test_a_collector_with_a_certificate_sends_over_tls(
    program: Path, settings: GatewaySettings, certificates: Certificates, tmp_path: Path
) -> None:
    file, exporters = certificates.file, EXPORTERS[:2]
    over_tls = replace(
        settings,
        gateway_tls_cert_file=file("server.pem"),
        gateway_tls_key_file=file("server.key"),
        gateway_tls_client_ca_file=file("ca.pem"),
    )
    own = f"{{ca_file: {file('ca.pem')}, cert_file: {file('client.pem')}, key_file: {file('client.key')}}}"
    with (
        serve_on_ports(over_tls) as gateway,
        run_collector(program, gateway, over_tls, tmp_path, exporters, own) as collector,
    ):
        post(collector.http, profiles("m1", time.time_ns() - 10**10).data.SerializeToString())
        wait_until(lambda: count(settings, RAW) == len(exporters), collector.log.read_text)
        trace_a_request(GrpcExporter(collector.grpc, insecure=True, timeout=PATIENCE_S))
        wait_until(lambda: count(settings, ACTIVITY) == 2 * len(exporters), collector.log.read_text)
        check(settings, len(exporters))
