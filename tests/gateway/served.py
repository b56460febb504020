"""A gateway on the in-process broker, asked without a network or on ports."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fastapi.testclient import TestClient
from httpx2 import Response

from gateway.grpc_server import GrpcServer
from gateway.http.app import create_app
from gateway.intake import Intake
from gateway.otlp_topic import profiles_topic, spans_topic
from gateway.publisher import BatchPublisher
from gateway.settings import GatewaySettings
from gateway.tls import tls_of
from icestream.http.server import Server
from icestream.messages.raw import RawColumns, decode_raw
from icestream.topics import RAW
from tests.pipeline.reading import messages
from tests.shared_routes import with_built_routes


@dataclass(frozen=True)
class Gateway:
    http: TestClient
    settings: GatewaySettings
    intake: Intake

    def batches(self) -> list[RawColumns]:
        """What Kafka has."""
        return [decode_raw(message.value()) for message in messages(self.settings, RAW)]


def serve(settings: GatewaySettings) -> Iterator[Gateway]:
    publisher = BatchPublisher(settings)
    intake = Intake(settings, publisher)
    app = with_built_routes(create_app(settings, publisher, intake), replace(settings, kafka=""))
    with TestClient(app, "http://localhost", raise_server_exceptions=False) as http:
        yield Gateway(http, settings, intake)
    publisher.close()


@dataclass(frozen=True)
class Ports:
    """Each as HOST:PORT."""

    http: str
    grpc: str


@contextlib.contextmanager
def serve_on_ports(settings: GatewaySettings) -> Iterator[Ports]:
    """As `icestream gateway` does, but without scraping."""
    with contextlib.ExitStack() as serving:
        publisher = BatchPublisher(settings)
        serving.callback(publisher.close)
        intake = Intake(settings, publisher)
        tls = tls_of(settings)
        http = Server(create_app(settings, publisher, intake), "127.0.0.1:0", tls.http_context() if tls else None)
        grpc = GrpcServer(settings, publisher, intake, tls)
        serving.callback(http.close)
        serving.callback(grpc.close)
        http.start()
        for topic, reader in (
            (settings.gateway_spans_topic, spans_topic), (settings.gateway_profiles_topic, profiles_topic),
        ):  # fmt: skip
            if topic:
                serving.callback(reader(settings, intake).close)
        yield Ports(http.address, f"127.0.0.1:{grpc.port}")


def code(answer: Response) -> tuple[int, str]:
    """The status and code of a refusal."""
    return answer.status_code, answer.json()["error"]["code"]
