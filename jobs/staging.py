"""Staging tables: tables like the live ones, in which a job collects what it recomputed."""

import uuid
from collections.abc import Iterable
from typing import Any

from clickhouse_connect.driver.client import Client

from sinks.clickhouse import SETTINGS

TABLES = ("samples", "activity", "spans", "series", "nodes", "locations")
"""The tables that hold what operators compute. A view fills `trace_samples` from `samples`."""
DELETE = {"lightweight_deletes_sync": 2}
"""Settings with which a DELETE has happened on every replica when it returns."""


def insert_settings() -> dict[str, Any]:
    """Returns the settings of an insert with a token of its own.

    A job inserts rows again that were deleted; without the token ClickHouse would drop the block as a repetition.
    """
    return SETTINGS | {"insert_deduplication_token": uuid.uuid4().hex}


def make_staging(client: Client, prefix: str, tables: Iterable[str] = TABLES) -> None:
    """Creates the empty tables `prefix`NAME, where they do not exist."""
    for name in tables:
        client.command(f"CREATE TABLE IF NOT EXISTS {prefix}{name} AS {name}")


def drop_staging(client: Client, prefix: str, tables: Iterable[str] = TABLES) -> None:
    for name in tables:
        client.command(f"DROP TABLE IF EXISTS {prefix}{name} SYNC")


def insert_new_names(client: Client, prefix: str) -> None:
    """Copies the staged series, nodes, spans and locations that the live tables lack, and better names of locations."""
    for name, key in (("series", "series_id"), ("nodes", "node_id"), ("spans", "(trace_id, span_id)")):
        client.command(
            f"INSERT INTO {name} SELECT * FROM {prefix}{name} FINAL WHERE {key} NOT IN (SELECT {key} FROM {name})",
            settings=insert_settings(),
        )
    client.command(
        f"INSERT INTO locations SELECT * FROM {prefix}locations FINAL"
        " WHERE (location_id, version) NOT IN (SELECT location_id, version FROM locations)"
        " AND (version > 0 OR location_id NOT IN (SELECT location_id FROM locations))",
        settings=insert_settings(),
    )
