"""Tables and an API, and what the gateway takes put into them without Kafka."""

from collections.abc import Iterator

import pytest
from clickhouse_connect.driver.client import Client
from fastapi.testclient import TestClient

from api.http.app import create_app
from api.settings import ApiSettings
from gateway.settings import GatewaySettings
from icestream.clickhouse.client import Clients
from icestream.settings import KafkaSettings
from tests.data.tables import make_tables
from tests.gateway.served import Gateway, serve
from tests.gateway.stored import Store
from tests.waiting import PATIENCE_S

DATABASE = "gateway_tests"


@pytest.fixture(scope="session")
def tables(engine: str) -> Iterator[Client]:
    yield from make_tables(engine, DATABASE)


@pytest.fixture(scope="module")
def store(engine: str, tables: Client) -> Iterator[Store]:
    """Processes, stores and answers."""
    clients = Clients(engine, database=DATABASE)
    with TestClient(create_app(ApiSettings(), Clients(engine, database=DATABASE)), base_url="http://localhost") as http:
        yield Store(clients, http)


@pytest.fixture
def gateway(in_process_broker: KafkaSettings) -> Iterator[Gateway]:
    """Takes profiles, with low limits."""
    kafka = in_process_broker.kafka
    yield from serve(GatewaySettings(kafka=kafka, gateway_body_mb=1, gateway_unpacked_mb=2, gateway_ack_s=PATIENCE_S))
