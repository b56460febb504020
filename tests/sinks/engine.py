"""A database of the embedded engine for each test."""

import itertools
from collections.abc import Iterator

import pytest
from clickhouse_connect.driver.client import Client

from icestream.clickhouse import Clients, connect
from sinks.migrate import migrate

_numbers = itertools.count(1)


@pytest.fixture
def empty(engine: str) -> Iterator[Clients]:
    """Clients of an empty database."""
    name = f"test_{next(_numbers)}"
    admin = connect(engine)
    admin.command(f"CREATE DATABASE {name}")
    yield Clients(engine, database=name)
    admin.command(f"DROP DATABASE {name}")
    admin.close()


@pytest.fixture
def clients(empty: Clients) -> Clients:
    """Clients of a database with all tables."""
    migrate(empty.get())
    return empty


@pytest.fixture
def client(clients: Clients) -> Client:
    return clients.get()
