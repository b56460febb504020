"""Backfill on the embedded engine, from the archive: the same tables as right the first time, and only its effect."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from icestream.messages.raw import RawColumns
from icestream.topics import RAW
from jobs.backfill import BackfillReport, backfill
from jobs.job import JobError
from streams.partition.process import Operators
from tests.jobs.stored import END, T0, WINDOWS, Stored, make_stored, tables
from tests.sinks.engine import client, clients, empty

__all__ = ["client", "clients", "empty"]

pytestmark = pytest.mark.pipeline

THIRD = (END - T0) // 3 // 10**9 * 10**9


@pytest.fixture
def stored(client: Client, tmp_path: Path) -> Stored:
    return make_stored(client, tmp_path)


def run(stored: Stored, *arguments: Any, **options: Any) -> BackfillReport:
    return backfill(stored.work("backfill", *arguments, **options))


def test_a_backfill_gives_the_same_tables_as_live_processing(stored: Stored) -> None:
    before = tables(stored.client)
    run(stored)
    assert tables(stored.client) == before
    for table in ("samples", "trace_samples", "activity", "spans"):
        stored.client.command(f"DELETE FROM {table} WHERE 1", settings={"lightweight_deletes_sync": 2})
    run(stored, T0 + THIRD, T0 + 2 * THIRD)
    assert 0 < stored.total() < sum(row[-1] for row in before["samples"])
    run(stored)
    assert tables(stored.client) == before
    stored.sink_again()
    assert tables(stored.client) == before
    assert [t for (t,) in stored.client.query("SHOW TABLES").result_rows if t.startswith("job_")] == ["job_locks"]


def test_a_pipeline_that_begins_while_a_job_stores_ends_the_job_and_the_next_run_replaces_what_both_stored(
    stored: Stored,
) -> None:
    before = tables(stored.client)
    checks = 0

    def check_cut() -> None:
        nonlocal checks
        checks += 1
        if checks == 2:  # the job has stored a slice
            stored.client.command("INSERT INTO samples SELECT * FROM samples", settings={"insert_deduplicate": 0})
            raise JobError("stream processors began")

    with pytest.raises(JobError, match="began"):
        backfill(dataclasses.replace(stored.work("backfill"), check_cut=check_cut))
    assert tables(stored.client) != before
    run(stored)
    assert tables(stored.client) == before


def doubled(raw: RawColumns) -> RawColumns:
    return dataclasses.replace(raw, sample_value=raw.sample_value * 2)


def test_a_changed_operator_has_its_effect_in_the_range_and_nowhere_else(stored: Stored) -> None:
    before = tables(stored.client)
    start, end = T0 + THIRD, T0 + 2 * THIRD
    run(stored, start, end, Operators(change=doubled))
    after = tables(stored.client)
    inside = stored.client.query(
        "SELECT min(value), max(value), count() FROM samples WHERE time >= fromUnixTimestamp64Milli({a:Int64})"
        " AND time < fromUnixTimestamp64Milli({b:Int64})",
        parameters={"a": start // 10**6, "b": end // 10**6},
    ).result_rows[0]
    assert inside[:2] == (20_000_000, 20_000_000)
    assert inside[2] > 0
    for table in ("samples", "trace_samples"):
        assert {row[:-1] for row in after[table]} == {row[:-1] for row in before[table]}
        changed = [(a[-1], b[-1]) for a, b in zip(after[table], before[table], strict=True) if a != b]
        assert all(a == 2 * b for a, b in changed)
    assert {name: rows for name, rows in after.items() if "samples" not in name} == {
        name: rows for name, rows in before.items() if "samples" not in name
    }
    run(stored, start, end)
    assert tables(stored.client) == before


@pytest.mark.parametrize("embedded", [True, False])
def test_columns_that_somebody_added_have_their_defaults(
    stored: Stored, embedded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "jobs.staging.staged_file.has_files_of", lambda _: embedded
    )  # the job stages rows as for a server
    for table, column in (
        ("samples", "`group ``by` String DEFAULT concat('of ', service)"),
        ("samples", "its_hour DateTime MATERIALIZED toStartOfHour(time)"),
        ("samples", "its_host String ALIAS host_id"),
        ("activity", "team LowCardinality(String) DEFAULT upper(service)"),
    ):
        stored.client.command(f"ALTER TABLE {table} ADD COLUMN {column}")
    added = (
        "SELECT DISTINCT service, `group ``by`, its_hour, its_host FROM samples ORDER BY ALL",
        "SELECT DISTINCT service, team FROM activity ORDER BY ALL",
    )
    before = [stored.client.query(sql).result_rows for sql in added]
    run(stored)
    assert [stored.client.query(sql).result_rows for sql in added] == before


def test_it_refuses_where_the_source_lacks_what_is_stored(stored: Stored) -> None:
    before = tables(stored.client)
    next((stored.archive / RAW).rglob("*.parquet")).unlink()
    with pytest.raises(JobError, match="1 stored batches of 1 hosts"):
        run(stored)
    assert tables(stored.client) == before
    assert run(stored, allow_missing=True).missing == 1
    assert tables(stored.client) == before


class Cut(Exception):
    """Stands for a kill."""


# Before its first DELETE a slice has changed nothing of samples, and after its INSERT of them it has all its rows: what
# is cut off between them shows more.
@pytest.mark.parametrize(
    ("statement", "at"),
    [
        pytest.param("DELETE FROM samples", 2, marks=pytest.mark.soak),
        ("INSERT INTO samples", 2),
        pytest.param("INSERT INTO batches", 3, marks=pytest.mark.soak),
    ],
)
def test_a_backfill_that_was_cut_off_anywhere_continues(
    stored: Stored, statement: str, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tables(stored.client)
    command, times = stored.client.command, [0]

    def cut(sql: str, *arguments: Any, **options: Any) -> Any:
        times[0] += sql.startswith(statement) and "job_" in sql
        if times[0] == at:
            raise Cut
        return command(sql, *arguments, **options)

    monkeypatch.setattr(stored.client, "command", cut)
    with pytest.raises(Cut):
        run(stored)
    monkeypatch.undo()
    other = stored.work("backfill", end=END - 10**9, name=stored.work("backfill").job.full_name)
    with pytest.raises(JobError, match="other arguments"):
        backfill(other)
    report = run(stored)
    assert report.resumed
    assert 0 < report.counts.samples < WINDOWS * 2 * 200  # the first slice was finished
    assert tables(stored.client) == before
