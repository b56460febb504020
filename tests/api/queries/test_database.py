"""Limits of one query, on the engine with few CPUs."""

import os

import pytest

from api.queries.database import Database
from api.settings import ApiSettings
from icestream.clickhouse.client import Clients


@pytest.mark.pipeline
@pytest.mark.parametrize("cpus", [2, 64])
def test_groups_that_do_not_fit_into_memory_go_to_a_disk(
    engine: str, monkeypatch: pytest.MonkeyPatch, cpus: int
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    database = Database(Clients(engine), ApiSettings(api_max_memory=400_000_000))
    groups = (
        "SELECT number AS key, sum(number) AS total, max(number), min(number) FROM numbers_mt(8000000) GROUP BY key"
    )
    answer = database.table(f"SELECT count() AS n, sum(total) AS total FROM ({groups})")
    assert answer.to_pylist() == [{"n": 8_000_000, "total": 8_000_000 * 7_999_999 // 2}]
