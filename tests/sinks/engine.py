"""A database of the embedded engine for each test."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from icestream.clickhouse.client import Clients, connect
from sinks.clickhouse.migrate import migrate

_numbers = itertools.count(1)
_unused: list[tuple[str, Any]] = []
"""Databases of this process that have all tables and no rows, and their `definitions`: to make all tables takes
longer than most tests."""


@pytest.fixture
def empty(engine: str) -> Iterator[Clients]:
    """Clients of an empty database."""
    admin = connect(engine)
    name = _create(admin)
    yield Clients(engine, database=name)
    admin.command(f"DROP DATABASE {name}")
    admin.close()


@pytest.fixture
def clients(engine: str) -> Iterator[Clients]:
    """Clients of a database with all tables, without rows."""
    admin = connect(engine)
    name, tables = _unused.pop() if _unused else _with_tables(admin, engine)
    yield Clients(engine, database=name)
    if definitions(admin, name) == tables:
        remove_rows(admin, name)
        _unused.append((name, tables))
    else:
        admin.command(f"DROP DATABASE {name}")
    admin.close()


@pytest.fixture
def client(clients: Clients) -> Client:
    return clients.get()


def _create(admin: Client) -> str:
    name = f"test_{next(_numbers)}"
    admin.command(f"CREATE DATABASE {name}")
    return name


def _with_tables(admin: Client, engine: str) -> tuple[str, Any]:
    name = _create(admin)
    client = connect(engine, database=name)
    migrate(client)
    client.close()
    return name, definitions(admin, name)


def definitions(admin: Client, database: str) -> Any:
    """All that tests change except rows: how tables are defined, what is recorded of them, and unfinished mutations."""
    return [
        admin.query(query.format(database)).result_rows
        for query in (
            "SELECT name, create_table_query FROM system.tables WHERE database = '{}' ORDER BY name",
            "SELECT * EXCEPT applied FROM {}.schema_migrations ORDER BY ALL",
            "SELECT command FROM system.mutations WHERE database = '{}' AND NOT is_done",
        )
    ]


def remove_rows(admin: Client, database: str) -> None:
    """Also makes tables forget the tokens of inserts, which a table may know that has lost its rows."""
    filled = (
        f"SELECT name FROM system.tables WHERE database = '{database}' AND engine LIKE '%MergeTree' AND"
        " name != 'schema_migrations' AND (total_rows > 0 OR create_table_query LIKE '%deduplication_window%')"
    )
    for (name,) in admin.query(filled).result_rows:
        admin.command(f"TRUNCATE TABLE {database}.{name}")
