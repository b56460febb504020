"""Tables of earlier releases, ordered by stack and without dictionaries of numbers: everything works with them, too."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client
from fastapi.testclient import TestClient

from api.http.app import create_app
from api.settings import ApiSettings
from icestream.clickhouse import Clients
from jobs.backfill import backfill
from sinks import rollups
from sinks.migrate import FOLDER, check, migrate
from sinks.rollups import Rollups
from tests.jobs.stored import END, T0, make_stored, tables
from tests.shared_routes import with_built_routes
from tests.sinks.engine import client, clients, empty

__all__ = ["client", "clients", "empty"]

pytestmark = pytest.mark.pipeline

_HOURS = "ALTER TABLE service_stack_hours\n"
_BY_WEEK = "\n)\nENGINE = MergeTree\nPARTITION BY toMonday"
_SUMS = "    MODIFY COLUMN count CODEC(ZSTD(3)),\n    MODIFY COLUMN value CODEC(GCD, ZSTD(3))"
NOW_AND_EARLIER = {
    f"{_HOURS}{_SUMS}": (
        f"{_HOURS}    MODIFY COLUMN start_time CODEC(GCD, T64('bit'), ZSTD(1)),\n{_SUMS},\n"
        "    MODIFY COLUMN build CODEC(ZSTD(1))"
    ),
    f"LowCardinality(UInt64) CODEC(ZSTD(1)){_BY_WEEK}": f"UInt64 CODEC(Delta, ZSTD(1)){_BY_WEEK}",
    "LowCardinality(DateTime('UTC')) CODEC(ZSTD(1))": "DateTime('UTC') CODEC(Delta, ZSTD(1))",
    "CODEC(Delta, ZSTD(1)),\n    parent_id": "CODEC(ZSTD(1)),\n    parent_id",
    "stack_id     UInt64 CODEC(ZSTD(3))": "stack_id     UInt64 CODEC(ZSTD(1))",
    "toMonday(start_time), stack_id, start_time)": "start_time, stack_id)",
    "LowCardinality(UInt32)": "UInt32",
    "LowCardinality(UInt64)": "UInt64",
    "CODEC(Delta, T64, ZSTD(1))": "CODEC(Delta, ZSTD(1))",
    "toStartOfHour(time), series_id)": "toStartOfHour(time), stack_id)",
    "toStartOfHour(time), series_id, time)": "toStartOfHour(time), stack_id, series_id, tid, time)",
    "CAST(samples.stack_id AS UInt64) AS stack_id, stack_id AS node_id": "stack_id, stack_id AS node_id",
    "CAST(samples.stack_id AS UInt64)": "samples.stack_id",
    "CAST(samples.tid AS UInt32)": "samples.tid",
    "MODIFY COLUMN batch_sequence CODEC(Delta, ZSTD(1))": (
        "MODIFY COLUMN time CODEC(T64('bit'), ZSTD(1)),\n    MODIFY COLUMN stack_id CODEC(ZSTD(3)),\n"
        "    MODIFY COLUMN batch_sequence CODEC(T64('bit'), ZSTD(1))"
    ),
}
QUESTIONS = [
    "merge?format=tree", "merge?format=tree&selector={host=\"host-1\"}", "top", "timeline", "timeline?sum_by=host",
    "traces", "labels", "operations", "labels/service/values",
]  # fmt: skip


@pytest.fixture
def earlier(empty: Clients, tmp_path: Path) -> Client:
    """Of tables that an earlier release made: the records say so by their checksums."""
    folder = tmp_path / "migrations"
    folder.mkdir()
    for path in FOLDER.glob("*.sql"):
        sql = path.read_text()
        for now, before in NOW_AND_EARLIER.items():
            sql = sql.replace(now, before)
        (folder / path.name).write_text(sql)
    migrate(empty.get(), folder)
    assert migrate(empty.get()) == []
    check(empty.get(), empty.dsn)
    return empty.get()


def test_rows_rollups_jobs_and_answers_are_those_of_new_tables(
    earlier: Client, client: Client, clients: Clients, empty: Clients, tmp_path: Path
) -> None:
    order = "SELECT sorting_key FROM system.tables WHERE database = currentDatabase() AND name = 'samples'"
    assert earlier.query(order).result_rows != client.query(order).result_rows
    stored, expected = make_stored(earlier, tmp_path / "earlier"), make_stored(client, tmp_path / "now")
    content = tables(client)
    assert tables(earlier) == content
    earlier.command("DELETE FROM samples WHERE 1", settings={"lightweight_deletes_sync": 2})
    backfill(stored.work("backfill"))
    backfill(expected.work("backfill"))
    assert tables(earlier) == content
    for each in (empty, clients):
        Rollups(each).step(threading.Event(), int(time.time() + 2 * rollups.QUIET_S))
        assert each.get().query("SELECT count() > 0 FROM series_stack_days").result_rows == [(True,)]
    expected_answers = answers(clients)
    assert answers(empty) == expected_answers
    assert expected_answers[0]["total"] == stored.total() > 0


def answers(clients: Clients) -> list[Any]:
    app = with_built_routes(create_app(ApiSettings(), clients), ApiSettings())
    found = []
    with TestClient(app, base_url="http://localhost") as http:
        for question in QUESTIONS:
            path, _, asked = question.partition("?")
            answer = http.get(f"/api/v1/{path}?start={T0 // 10**9}&end={END // 10**9}&{asked}")
            assert answer.status_code == 200, (question, answer.text)
            found.append(answer.json())
    return found
