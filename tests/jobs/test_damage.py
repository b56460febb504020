"""A damaged file of the archive costs only what it has, and each job names it."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from icestream.topics import ACTIVITY, RAW
from jobs.backfill import backfill, plan
from jobs.job import JobError, Outcome
from jobs.lake.lake import StoredBatch
from jobs.replay import replay
from jobs.stored.batches import host_minutes
from jobs.time_range import JobTimeRange
from tests.data.windows import window
from tests.jobs.stored import T0, WINDOWS, Stored, make_stored, tables
from tests.jobs.test_late_arrivals import on_call
from tests.sinks.engine import client, clients, empty, remove_rows

__all__ = ["client", "clients", "empty"]

pytestmark = pytest.mark.pipeline

DAMAGES = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "one bit": lambda content: content[:2000] + bytes([content[2000] ^ 1]) + content[2001:],
    "zeros": lambda content: bytes(len(content)),
}


@pytest.fixture
def stored(client: Client, tmp_path: Path) -> Stored:
    return make_stored(client, tmp_path)


def damage(stored: Stored, topic: str, kind: str) -> Path:
    """Damages the file of the first window of host-0."""
    path = min((stored.archive / topic).rglob("*.parquet"), key=lambda path: int(path.name.split("-")[2]))
    path.write_bytes(DAMAGES[kind](path.read_bytes()))
    return path


def names(outcome: Outcome, path: Path) -> bool:
    """Whether a job names the file, and says that it is not complete."""
    return not outcome.is_complete and sum(line.startswith(f"{path} is damaged: ") for line in outcome.lines) == 1


# Each kind in one job and topic; in `make test-more` in all.
@pytest.mark.parametrize(
    "kind", ["empty", "one bit", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("cut", "zeros"))]
)
def test_a_replay_restores_everything_but_a_damaged_file(stored: Stored, kind: str) -> None:
    before = tables(stored.client)
    path = damage(stored, RAW, kind)
    assert names(replay(stored.work("replay")).outcome(dry_run=False), path)
    assert tables(stored.client) == before
    remove_rows(stored.client, stored.client.database)
    assert names(replay(stored.work("replay")).outcome(dry_run=False), path)
    assert stored.total() == sum(row[-1] for row in before["samples"]) - window(T0, 1).value
    assert len(tables(stored.client)["batches"]) == len(before["batches"]) - 1


def test_a_replay_leaves_traces_whose_activity_is_in_a_damaged_file(stored: Stored) -> None:
    before = tables(stored.client)
    damage(stored, ACTIVITY, "cut")
    assert not replay(stored.work("replay")).outcome(dry_run=False).is_complete
    assert tables(stored.client) == before


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        pytest.param(
            topic, kind, marks=() if (topic, kind) in ((RAW, "cut"), (ACTIVITY, "zeros")) else pytest.mark.soak
        )
        for topic, kind in itertools.product((RAW, ACTIVITY), DAMAGES)
    ],
)
def test_a_backfill_replaces_everything_but_a_damaged_file(stored: Stored, topic: str, kind: str) -> None:
    before = tables(stored.client)
    path = damage(stored, topic, kind)
    planned = plan(stored.work("backfill", dry_run=True))
    if kind != "one bit":  # a plan reads no messages
        assert planned.lines[-1].startswith(f"{path} is damaged: ")
    assert names(backfill(stored.work("backfill")).outcome(), path)
    assert tables(stored.client) == before


@pytest.mark.parametrize("run", [backfill, replay])
def test_a_job_that_continues_names_what_was_damaged_before_it_was_cut_off(stored: Stored, run: Any) -> None:
    path = damage(stored, RAW, "cut")
    cut = on_call(2 * WINDOWS - 2, lambda: pytest.fail("is cut off here"))  # in its second and last slice
    with pytest.raises(pytest.fail.Exception):
        run(stored.work("a", operators=cut, name="same"))
    report = run(stored.work("a", name="same"))
    assert report.resumed
    assert names(report.outcome(dry_run=False) if run is replay else report.outcome(), path)


def test_the_minutes_are_left_alone_that_missing_activity_reaches_into() -> None:
    last_ms = 120_000 - 100
    for kind, minutes in (("activity", {60, 120}), ("samples", {60})):
        batch = StoredBatch(kind, "c", 1, 1, 0, RAW, "C", 0, 0, "host", 60_000, last_ms)
        assert host_minutes([batch], JobTimeRange(0, 600 * 10**9)) == {("host", minute) for minute in minutes}


def test_a_file_that_is_gone_is_missing_data(stored: Stored) -> None:
    before = tables(stored.client)
    min((stored.archive / RAW).rglob("*.parquet")).unlink()
    with pytest.raises(JobError, match="1 stored batches of 1 hosts"):
        backfill(stored.work("backfill"))
    planned = plan(stored.work("backfill", dry_run=True))
    assert "would end with an error because of 1 stored batches that are not in the source" in planned.lines
    outcome = replay(stored.work("replay")).outcome(dry_run=False)
    assert "1 stored batches are not in the source: their minutes were left alone" in outcome.lines
    assert not outcome.is_complete
    assert tables(stored.client) == before
