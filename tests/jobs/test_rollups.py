"""A backfill replaces samples, so rollups of its hours are built again, and not read until then."""

import threading
import time
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from icestream.clickhouse.client import Clients
from icestream.clickhouse.rollups import DAYS, OPERATION_DAYS, Level
from jobs.backfill import backfill
from jobs.replay import replay
from sinks.rollups.builder import Rollups
from sinks.rollups.builds import read_valid_builds
from sinks.rollups.changes import REQUESTS_QUIET_S
from tests.jobs.stored import END, T0, make_stored
from tests.sinks.engine import client, clients, empty
from tests.waiting import PATIENCE_S

__all__ = ["client", "clients", "empty"]

pytestmark = pytest.mark.pipeline


def build(clients: Clients) -> None:
    Rollups(clients, PATIENCE_S).step(threading.Event(), int(time.time()) + 2 * REQUESTS_QUIET_S)


def valid(client: Client, level: Level = DAYS) -> dict[int, int]:
    return read_valid_builds(client, level, T0 // 10**9, END // 10**9)


def test_rollups_are_those_of_what_jobs_stored(clients: Clients, client: Client, tmp_path: Path) -> None:
    stored = make_stored(client, tmp_path)
    expected = of_rows(client)
    for table, rows in (("samples", "stack_id % 3 = 0"), ("activity", "host_id = 'host-1'")):
        client.command(f"DELETE FROM {table} WHERE {rows}", settings={"lightweight_deletes_sync": 2})
    build(clients)
    first = valid(client)
    assert len(first) == 2
    assert of_rollups(client) == of_rows(client)
    assert all(left < whole for left, whole in zip(of_rows(client), expected, strict=True))
    backfill(stored.work("backfill"))
    assert (valid(client), valid(client, OPERATION_DAYS)) == ({}, {})
    build(clients)
    assert first.keys() == valid(client).keys()
    for table in ("series_stack_days", "service_stack_days"):
        rolled = client.query(
            f"SELECT sum(value) FROM {table} WHERE build IN {{builds:Array(UInt64)}}",
            parameters={"builds": list(valid(client).values())},
        ).result_rows[0][0]
        assert rolled == stored.total()
    assert of_rollups(client) == of_rows(client) == expected
    replay(stored.work("replay"))  # nothing is missing, so it changes nothing
    assert (len(valid(client)), len(valid(client, OPERATION_DAYS))) == (2, 2)
    client.command("TRUNCATE TABLE spans")
    replay(stored.work("replay"))  # brings back spans, and nothing else
    assert (len(valid(client)), valid(client, OPERATION_DAYS)) == (2, {})
    build(clients)
    assert of_rollups(client) == of_rows(client) == expected


def of_rows(client: Client) -> tuple[int, ...]:
    """Nanoseconds of thread CPU and of sampled CPU."""
    sums = "(SELECT sum(thread_cpu_ns) FROM activity), (SELECT sum(value) FROM samples)"
    return tuple(client.query(f"SELECT {sums}").result_rows[0])


def of_rollups(client: Client) -> tuple[int, ...]:
    rows = client.query(
        "SELECT sum(thread_cpu_ns), sum(value) FROM operation_days WHERE build IN {builds:Array(UInt64)}",
        parameters={"builds": list(valid(client, OPERATION_DAYS).values())},
    ).result_rows
    return tuple(rows[0])
