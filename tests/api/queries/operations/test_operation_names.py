"""Names of operations are listed without reading what cannot have any, and only those of rollups that count."""

import pytest
from clickhouse_connect.driver.client import Client

from api.queries.database import Database
from api.queries.operations.any_operations import OPERATION_TABLES
from api.queries.operations.operation_names import read_operation_names
from api.queries.selection.time_range import TimeRange
from api.settings import ApiSettings
from icestream.clickhouse.client import Clients
from icestream.clickhouse.rollups import OPERATION_LEVELS, OPERATION_MINUTES, Level
from tests.api.conftest import Api
from tests.api.queries.operations_data import Request, insert_requests
from tests.api.queries.rollup_store import T0
from tests.api.queries.test_reported_operations import insert_many_samples
from tests.data.tables import insert_rows, to_datetime


@pytest.mark.parametrize("settings", [ApiSettings(api_max_rows=50_000)])
def test_no_samples_are_read_where_no_span_has_an_operation(api: Api, client: Client) -> None:
    insert_many_samples(client, "shop")
    assert "operation" not in api.json("/api/v1/labels")["labels"]
    assert api.json("/api/v1/labels/operation/values", selector='{service="shop"}')["values"] == []
    insert_requests(client, [Request(1, "GET /", samples=0)])
    assert api.get("/api/v1/labels/operation/values").status_code == 422  # now they are


@pytest.mark.parametrize("level", OPERATION_LEVELS)
def test_without_a_time_range_names_are_those_of_the_newest_complete_builds(
    engine: str, database: str, level: Level
) -> None:
    clients = Clients(engine, database=database)
    insert_builds(clients.get(), level)
    assert read_operation_names(Database(clients, ApiSettings()), (), None, "", 10) == ["GET /2"]


@pytest.mark.parametrize("level", [level for level in OPERATION_LEVELS if level != OPERATION_MINUTES])
def test_names_of_a_time_range_whose_rows_are_gone_are_those_of_rollups(
    engine: str, database: str, level: Level
) -> None:
    clients = Clients(engine, database=database)
    insert_builds(clients.get(), level)
    time_range = TimeRange(T0 * 10**9, (T0 + level.bucket_s) * 10**9)
    assert read_operation_names(Database(clients, ApiSettings()), (), time_range, "", 10) == ["GET /2"]


def insert_builds(client: Client, level: Level) -> None:
    """Three builds of one bucket; the last one is not complete."""
    states = {1: ("begun", "built"), 2: ("begun", "built"), 3: ("begun",)}
    insert_rows(
        client,
        OPERATION_TABLES[level],
        [bucket() | {"service": "shop", "operation": f"GET /{build}", "build": build} for build in states],
    )
    builds = [(build, state) for build, all_states in states.items() for state in all_states]
    insert_rows(
        client,
        "rollup_builds",
        [bucket() | {"level": level.name, "build": build, "state": state} for build, state in builds],
    )


def bucket() -> dict[str, object]:
    return {"start_time": to_datetime(T0)}
