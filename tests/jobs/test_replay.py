"""Replay on the embedded engine, from the archive: what is there stays, what is gone comes back."""

from pathlib import Path
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from icestream.messages.raw import decode_raw
from icestream.topics import ACTIVITY, RAW
from jobs.replay import ReplayReport, replay
from jobs.time_range import SLICE_NS
from tests.data.messages import WINDOW_NS
from tests.data.windows import window
from tests.jobs.stored import END, T0, WINDOWS, Stored, make_stored, tables
from tests.sinks.engine import client, clients, empty

__all__ = ["client", "clients", "empty"]

pytestmark = pytest.mark.pipeline


@pytest.fixture
def stored(client: Client, tmp_path: Path) -> Stored:
    return make_stored(client, tmp_path)


def run(stored: Stored, **options: Any) -> ReplayReport:
    return replay(stored.work("replay", **options))


def test_a_replay_of_what_is_there_changes_nothing(stored: Stored) -> None:
    before = tables(stored.client)
    report = run(stored)
    assert report.counts.samples == WINDOWS * 2 * 200
    assert (report.clickhouse.restored.total(), report.missing) == (0, 0)
    assert report.outcome(dry_run=False).is_complete
    assert tables(stored.client) == before


DELETES = [
    f"DELETE FROM samples WHERE toUnixTimestamp(time) - {T0 // 10**9} BETWEEN 20 AND 30",
    "DELETE FROM trace_samples WHERE host_id = 'host-1'",
    "DELETE FROM samples WHERE stack_id % 3 = 0",
    "DELETE FROM activity WHERE host_id = 'host-0'",
    "DELETE FROM spans WHERE 1",
    "DELETE FROM nodes WHERE node_id % 2 = 0",
    "DELETE FROM locations WHERE 1",
    "DELETE FROM series WHERE 1",
    "DELETE FROM batches WHERE sequence > 3",
]


def delete(stored: Stored, statement: str) -> None:
    stored.client.command(statement, settings={"lightweight_deletes_sync": 2})


def test_a_dry_run_changes_nothing_and_what_was_deleted_comes_back(stored: Stored) -> None:
    before = tables(stored.client)
    for statement in DELETES:
        delete(stored, statement)
    damaged = tables(stored.client)
    run(stored, dry_run=True)
    assert tables(stored.client) == damaged
    run(stored)
    assert tables(stored.client) == before


@pytest.mark.soak  # all at once is the test above
def test_what_was_deleted_from_one_table_comes_back(stored: Stored) -> None:
    before = tables(stored.client)
    for statement in DELETES:
        delete(stored, statement)
        assert tables(stored.client) != before, statement
        run(stored)
        assert tables(stored.client) == before, statement


def test_everything_comes_back_into_empty_tables_and_is_not_stored_again_by_the_sink(stored: Stored) -> None:
    before = tables(stored.client)
    for table in before:
        stored.client.command(f"TRUNCATE TABLE {table}")
    assert run(stored).clickhouse.restored["batches"] == WINDOWS * 2 * 2
    assert tables(stored.client) == before
    stored_now = "SELECT countIf(stored_time < now() - 3600) FROM batches"  # by that they are kept
    assert stored.client.query(stored_now).result_rows == [(0,)]
    stored.sink_again()
    assert tables(stored.client) == before


def test_only_the_range_is_restored(stored: Stored) -> None:
    before = tables(stored.client)
    stored.client.command("TRUNCATE TABLE samples")
    stored.client.command("TRUNCATE TABLE trace_samples")
    half = T0 + (END - T0) // 2
    run(stored, end=half)
    one = stored.client.query("SELECT max(toUnixTimestamp64Milli(time)) FROM samples").result_rows[0][0]
    assert half // 10**6 - 200 < one < half // 10**6
    run(stored, start=half)
    assert tables(stored.client) == before


def test_minutes_whose_batches_the_source_lost_are_left_alone(stored: Stored) -> None:
    files = sorted((stored.archive / RAW).rglob("*.parquet"))
    files[0].unlink()
    before = tables(stored.client)
    assert run(stored).missing
    assert tables(stored.client) == before
    delete(stored, "DELETE FROM samples WHERE stack_id % 3 = 0")
    partly = stored.total()
    report = run(stored)
    assert report.missing
    assert partly <= stored.total()


def test_what_live_processing_refuses_for_its_times_is_refused_again(stored: Stored) -> None:
    """Each message counts once: the windows begin before the range, end where a slice does, reach into the next slice,
    and end after the range."""
    total = stored.total()
    for start, sequence in ((T0, 1), (T0, 3), (T0 - WINDOW_NS // 2, 4), (T0, WINDOWS)):
        refused = window(start, sequence)
        stored.add(ACTIVITY, refused.activity, kafka_late_days=40)
        stored.add(RAW, refused.raw, kafka_late_days=40)
    assert decode_raw(window(T0, 3).raw).end_unix_nano % SLICE_NS == 0
    report = run(stored, start=T0 + WINDOW_NS // 2, end=END - WINDOW_NS // 2)
    assert report.counts.bad == {(RAW, "start_unix_nano"): 4, (ACTIVITY, "start_unix_nano"): 4}
    said = "8 messages cannot be decoded and were left out"
    assert f"{said} ({ACTIVITY} start_unix_nano: 4, {RAW} start_unix_nano: 4)" in report.outcome(dry_run=False).lines
    assert stored.total() == total


def test_garbage_in_the_archive_stops_nothing(stored: Stored) -> None:
    stored.add(RAW, b"\xff\xfe")
    stored.add(ACTIVITY, b"garbage")
    assert run(stored).counts.bad == {(RAW, "RawBatch"): 1, (ACTIVITY, "ActivityBatch"): 1}
