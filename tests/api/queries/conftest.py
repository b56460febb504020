"""A store with rollups for each test."""

import pytest

from icestream.clickhouse.client import Clients
from tests.api.queries.rollup_store import Store


@pytest.fixture
def store(engine: str, database: str) -> Store:
    return Store(Clients(engine, database=database))
