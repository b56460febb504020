"""The API over the embedded engine, which can be one only in a process; tables are emptied between tests."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from clickhouse_connect.driver.client import Client
from fastapi.testclient import TestClient
from httpx2 import Response

from api.http.app import create_app
from api.settings import ApiSettings
from icestream.clickhouse.client import Clients, connect
from tests.api.fill import START_S
from tests.data.tables import make_tables
from tests.shared_routes import with_built_routes

DATABASE = "api_tests"
RANGE = {"start": str(START_S), "end": str(START_S + 3600)}


@pytest.fixture(scope="session")
def tables(engine: str) -> Iterator[Client]:
    yield from make_tables(engine, DATABASE)


@pytest.fixture
def database(tables: Client) -> str:
    """Name of a database with all tables, empty."""
    remove_rows(tables)
    return DATABASE


def remove_rows(tables: Client) -> None:
    filled = "SELECT name FROM system.tables WHERE database = currentDatabase() AND total_rows > 0"
    for (name,) in tables.query(filled).result_rows:
        if name != "schema_migrations":
            tables.command(f"TRUNCATE TABLE {name}")


@pytest.fixture
def client(engine: str, database: str) -> Iterator[Client]:
    """Writes to the database."""
    client = connect(engine, database=database)
    yield client
    client.close()


@dataclass(frozen=True)
class Api:
    http: TestClient

    def get(self, path: str, **parameters: object) -> Response:
        """With a time range, where the route has one."""
        has_range = not path.endswith(("/cpu", "/profile-types"))
        return self.http.get(path, params=(RANGE if has_range else {}) | parameters)

    def json(self, path: str, **parameters: object) -> dict:
        answer = self.get(path, **parameters)
        assert answer.status_code == 200, answer.text
        body: dict = answer.json()
        return body


@pytest.fixture
def settings() -> ApiSettings:
    return ApiSettings()


@pytest.fixture
def api(engine: str, database: str, settings: ApiSettings) -> Iterator[Api]:
    app = with_built_routes(create_app(settings, Clients(engine, database=database)), settings)
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as http:
        yield Api(http)
