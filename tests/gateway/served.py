"""A gateway on the in-process broker, asked without a network."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fastapi.testclient import TestClient
from httpx2 import Response

from gateway.http.app import create_app
from gateway.publisher import Publisher
from gateway.settings import GatewaySettings
from icestream.messages.raw import RawColumns, decode_raw
from icestream.topics import RAW
from tests.pipeline.reading import messages
from tests.shared_routes import with_built_routes


@dataclass(frozen=True)
class Gateway:
    http: TestClient
    settings: GatewaySettings

    def batches(self) -> list[RawColumns]:
        """What Kafka has."""
        return [decode_raw(message.value()) for message in messages(self.settings, RAW)]


def serve(settings: GatewaySettings) -> Iterator[Gateway]:
    publisher = Publisher(settings)
    app = with_built_routes(create_app(settings, publisher), replace(settings, kafka=""))
    with TestClient(app, "http://localhost", raise_server_exceptions=False) as http:
        yield Gateway(http, settings)
    publisher.close()


def code(answer: Response) -> tuple[int, str]:
    """The status and code of a refusal."""
    return answer.status_code, answer.json()["error"]["code"]
