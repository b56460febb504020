"""A store with rollups for each test."""

import pytest
from clickhouse_connect.driver.client import Client

from tests.api.queries.rollup_store import Store


@pytest.fixture
def store(engine: str, database: str, client: Client) -> Store:
    return Store(engine, database, client)
