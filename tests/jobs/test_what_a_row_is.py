"""Replay compares what a row is: traces, operations and stacks, and not only how much CPU there is."""

from pathlib import Path
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from icestream.topics import ACTIVITY
from jobs.lake.rows import JobLake
from jobs.replay import ReplayReport, replay
from tests.jobs.lake.test_lake import check_same, in_lake, restored_in_lake, table, to_lake
from tests.jobs.stored import WINDOWS, Stored, make_stored, tables
from tests.sinks.engine import client, clients, empty, remove_rows

__all__ = ["client", "clients", "empty"]

pytestmark = pytest.mark.pipeline


def make(client: Client, folder: Path, **options: Any) -> Stored:
    stored = make_stored(client, folder, **options)
    stored.lake = JobLake(str(folder / "lake"), lambda: None)
    to_lake(stored, stored.outputs)
    return stored


def run(stored: Stored, **options: Any) -> ReplayReport:
    return replay(stored.work("replay", **options))


def restored(report: ReplayReport) -> dict[str, int]:
    return {name: count for name, count in report.clickhouse.restored.items() if count}


def traced(client: Client) -> int:
    return int(client.query("SELECT sum(value) FROM trace_samples").result_rows[0][0])


@pytest.mark.parametrize("forgotten", [pytest.param(range(1, WINDOWS + 1), marks=pytest.mark.soak), [3]])
def test_samples_get_the_traces_that_the_live_pipeline_forgot_in_both_stores(
    client: Client, tmp_path: Path, forgotten: list[int]
) -> None:
    made = make(client, tmp_path / "right")
    right, lake, cpu = tables(client), in_lake(made), traced(client)
    remove_rows(client, client.database)
    stored = make(client, tmp_path / "forgotten", forgotten=forgotten)
    assert traced(client) < cpu
    assert stored.total() == sum(row[-1] for row in right["samples"])
    damaged = tables(client)
    expected = 2 * len({(sequence - 1) // 3 for sequence in forgotten})  # minutes of two hosts
    for dry_run in (True, False):
        assert tables(client) == damaged
        report = run(stored, dry_run=dry_run)
        assert restored(report) == restored_in_lake(report) == {"samples": expected}
    assert tables(client) == right
    assert check_same(stored) == lake
    again = run(stored)
    assert (restored(again), restored_in_lake(again)) == ({}, {})
    assert again.outcome(dry_run=False).is_complete
    stored.sink_again()
    assert traced(client) == cpu


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("samples", "span_id = toFixedString('wrong', 8)"),
        ("samples", "trace_id = toFixedString('wrong', 16)"),
        ("samples", "stack_id = stack_id + 1"),
        ("activity", "duration_ns = duration_ns + 1"),
        *(
            pytest.param(*each, marks=pytest.mark.soak)
            for each in (
                ("samples", "tid = tid + 1"),
                ("samples", "pid = pid + 1"),
                ("activity", "operation = 'GET /wrong'"),
                ("activity", "span_id = toFixedString('wrong', 8)"),
            )
        ),
    ],
)
def test_rows_that_say_something_else_are_replaced(client: Client, tmp_path: Path, name: str, change: str) -> None:
    stored = make_stored(client, tmp_path)
    before = tables(client)
    client.command(f"ALTER TABLE {name} UPDATE {change} WHERE host_id = 'host-1'", settings={"mutations_sync": 2})
    assert tables(client) != before
    wrong_trace = change.startswith("trace_id")
    report = run(stored)
    if wrong_trace:  # as if the activity of these traces was lost: a replay takes no trace away
        assert (restored(report), len(report.clickhouse.unknown)) == ({}, 2)
        return
    assert restored(report) == {name: 2}
    assert tables(client) == before
    assert restored(run(stored)) == {}


def test_a_replay_takes_no_trace_away_whose_activity_the_source_lacks(client: Client, tmp_path: Path) -> None:
    stored = make(client, tmp_path)
    before, lake = traced(client), in_lake(stored)
    for file in (stored.archive / ACTIVITY).rglob("*.parquet"):
        file.unlink()
    client.command("DELETE FROM batches WHERE kind = 'activity'", settings={"lightweight_deletes_sync": 2})
    table(stored, "batches").delete("kind = 'activity'")
    report = run(stored)
    assert (restored(report), restored_in_lake(report)) == ({}, {})
    assert traced(client) == before
    assert {name: rows for name, rows in in_lake(stored).items() if name != "batches"} == {
        name: rows for name, rows in lake.items() if name != "batches"
    }
    outcome = report.outcome(dry_run=False)
    assert not outcome.is_complete
    assert "the activity of stored traces is not in the source: 4 minutes of hosts were left alone" in outcome.lines


def test_the_report_says_what_was_restored_by_kind_and_store(client: Client, tmp_path: Path) -> None:
    stored = make(client, tmp_path)
    client.command("DELETE FROM activity WHERE host_id = 'host-0'", settings={"lightweight_deletes_sync": 2})
    client.command("TRUNCATE TABLE spans")
    table(stored, "samples").delete("host_id = 'host-1'")
    lines = run(stored).outcome(dry_run=False).lines
    assert (
        "ClickHouse: samples of 0 of 4 minutes of hosts, activity of 2 of 4 minutes of hosts, 12 spans, 0 series,"
        " 0 nodes, 0 locations and 0 batches were restored"
    ) in lines
    assert (
        "the lake: samples of 2 of 4 minutes of hosts, activity of 0 of 4 minutes of hosts, 0 spans, 0 series,"
        " 0 nodes, 0 locations and 0 batches were restored"
    ) in lines


def test_batches_of_minutes_that_are_left_alone_are_not_taken_for_stored(client: Client, tmp_path: Path) -> None:
    stored = make(client, tmp_path)
    before = tables(client)
    for kind in ("samples", "batches"):  # one window is missing, and the source lacks another of its minute
        one = "kind = 'samples' AND" if kind == "batches" else ""
        which = "batch_sequence" if kind == "samples" else "sequence"
        client.command(
            f"DELETE FROM {kind} WHERE {one} host_id = 'host-0' AND {which} = 2",
            settings={"lightweight_deletes_sync": 2},
        )
    files = sorted((stored.archive / "icestream.raw").rglob("*.parquet"))
    kept = files[0].read_bytes()
    files[0].unlink()
    assert run(stored).missing == 1
    assert ("samples", "host-0", 2, 0) not in {row[:4] for row in tables(client)["batches"]}
    files[0].write_bytes(kept)
    assert restored(run(stored)) == {"samples": 1, "batches": 1}
    assert tables(client) == before
