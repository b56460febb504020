"""A job that stands still, or whose process is killed, loses its range to another job: nothing is stored twice."""

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import Error

from icestream.clickhouse.client import Clients
from jobs.backfill import backfill
from jobs.job import JobError
from jobs.lake.rows import JobLake
from jobs.locks import lock
from jobs.locks.fence import Fence, end_statements
from jobs.locks.lock import JobLock
from jobs.recompute.slices import Work
from streams.partition.process import Operators
from tests.jobs.lake.test_lake import check_same, in_lake, to_lake
from tests.jobs.lake.test_lake import table as lake_table
from tests.jobs.remote import job_that_stops
from tests.jobs.stored import make_stored, tables
from tests.jobs.test_backfill import doubled
from tests.sinks.engine import client, clients, empty
from tests.waiting import wait_until

__all__ = ["client", "clients", "empty"]

pytestmark = pytest.mark.pipeline


# Locations come first, and are the same from both jobs: before them the job has changed nothing. A job that wakes after
# its DELETE would insert its rows beside those of the other job; after its INSERT, less is left to do.
@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("INSERT INTO locations", marks=pytest.mark.soak),
        "DELETE FROM samples",
        pytest.param("INSERT INTO samples", marks=pytest.mark.soak),
    ],
)
def test_a_frozen_job_that_wakes_after_its_range_was_taken_over_changes_nothing(
    statement: str, clients: Clients, client: Client, tmp_path: Path
) -> None:
    stored = make_stored(client, tmp_path)
    before = tables(client)
    client.command("TRUNCATE TABLE locations")  # else it has none to insert
    with job_that_stops(clients, stored, statement) as frozen:
        wait_until(lambda: os.waitpid(frozen.pid, os.WUNTRACED | os.WNOHANG)[0] == frozen.pid)
        other = stored.work("backfill", name="other")
        wait_until(lambda: _runs(clients, other))
        assert tables(client) == before
        frozen.send_signal(signal.SIGCONT)
        output, _ = frozen.communicate()
        assert "stood still and lost its lock" in output
    assert tables(client) == before


# `batches` come after all rows; the lake lacks some of them, and both jobs would add them. A job that wakes before its
# commit of samples has all of that before it.
@pytest.mark.parametrize("statement", ["COMMIT samples", pytest.param("COMMIT batches", marks=pytest.mark.soak)])
def test_a_frozen_job_that_wakes_after_its_range_was_taken_over_changes_nothing_in_the_lake(
    statement: str, clients: Clients, client: Client, tmp_path: Path
) -> None:
    stored = make_stored(client, tmp_path)
    stored.lake = JobLake(str(tmp_path / "lake"), lambda: None)
    to_lake(stored, stored.outputs)
    lake_table(stored, "batches").delete("kind = 'activity'")
    before = in_lake(stored)
    with job_that_stops(clients, stored, statement) as frozen:
        wait_until(lambda: os.waitpid(frozen.pid, os.WUNTRACED | os.WNOHANG)[0] == frozen.pid)
        other = stored.work("backfill", operators=Operators(change=doubled), name="other")
        wait_until(lambda: _runs(clients, other))
        newer = check_same(stored)
        assert newer["samples"] != before["samples"]
        assert newer["batches"] != before["batches"]
        frozen.send_signal(signal.SIGCONT)
        output, _ = frozen.communicate()
        assert "stood still and lost its lock" in output
    assert check_same(stored) == newer


def _runs(clients: Clients, work: Work) -> bool:
    """Runs a job if its range is free."""
    try:
        claim = JobLock(clients, work.job.full_name, work.job.time_range).__enter__()
    except JobError:
        return False
    backfill(replace(work, check_lock=claim.check, fence=claim.fence))
    claim.__exit__(None, None, None)
    return True


def test_what_the_server_still_executes_for_a_fenced_job_is_ended(clients: Clients, client: Client) -> None:
    fence, errors = Fence("a1"), []
    sql = "INSERT INTO jobs (job, step) SELECT 'slow', '' FROM numbers(10000) WHERE sleepEachRow(0.1) = 0"

    def work() -> None:
        try:
            clients.get().command(sql, settings={"max_block_size": 1} | fence.settings)
        except Error as error:
            errors.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    running = "SELECT count() FROM system.processes WHERE Settings['log_comment'] = 'icestream job a1'"
    wait_until(lambda: client.query(running).result_rows == [(1,)])
    end_statements(client, fence.owner)
    thread.join()
    assert "QUERY_WAS_CANCELLED" in errors[0]


def test_a_lock_that_was_taken_over_is_lost_even_if_it_is_renewed(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = JobLock(clients, "slow", stored_range := lock.JobTimeRange(0, 10**9))
    monkeypatch.setattr(lock, "_process", lambda pid: f"elsewhere/1/{pid}")
    claim._claim(clients.get(), 1)
    wait_until(lambda: not claim._live_claims(clients.get()))
    monkeypatch.undo()
    with JobLock(clients, "next", stored_range):
        claim._claim(clients.get(), 60)
        with pytest.raises(JobError, match="lost its lock"):
            claim.check(clients.get())
        held = clients.get().query(f"SELECT {claim.fence.condition}").result_rows
        assert held == [(0,)]
