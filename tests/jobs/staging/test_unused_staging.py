"""Staging tables of jobs that ended in the middle go with the next job."""

import pytest
from clickhouse_connect.driver.client import Client

from icestream.clickhouse.client import Clients
from jobs.job import Job
from jobs.locks.lock import JobLock
from jobs.locks.record import JobRecord
from jobs.staging.staging import TABLES, Staging
from jobs.time_range import JobTimeRange
from tests.sinks.engine import client, clients, empty

__all__ = ["client", "clients", "empty"]

pytestmark = pytest.mark.pipeline

MINUTE = 60 * 10**9


def range_of(number: int) -> JobTimeRange:
    return JobTimeRange(number * MINUTE, (number + 1) * MINUTE)


def stage(clients: Clients, name: str, number: int) -> JobLock:
    """Begins a job, and makes the staging tables of a slice."""
    lock = JobLock(clients, name, range_of(number)).__enter__()
    staging = Staging(clients.get(), name, range_of(number), lock.fence)
    staging.make()
    staging.make_list([(1,)], number="Int64")
    return lock


def staged(client: Client) -> set[str]:
    """The jobs that have staging tables."""
    rows = client.query(
        "SELECT name FROM system.tables WHERE database = currentDatabase() AND name LIKE 'job\\\\_%\\\\_\\\\_%'"
    )
    return {name.removeprefix("job_").partition("__")[0] for (name,) in rows.result_rows}


def begin(clients: Clients, name: str, number: int) -> None:
    """Begins another job."""
    part = range_of(number)
    job = Job(kind="replay", start_unix_nano=part.start_unix_nano, end_unix_nano=part.end_unix_nano, name=name)
    with JobLock(clients, name, part) as lock:
        JobRecord(clients.get(), name, lock.fence).begin(job)


def test_a_job_drops_the_staging_tables_of_jobs_whose_locks_have_ended_an_hour_ago(
    clients: Clients, client: Client
) -> None:
    client.command("CREATE TABLE job_mine__of_somebody_else (x Int8) ENGINE = Memory")
    stage(clients, "gone", 0).__exit__(None, None, None)  # as after an error in the middle of a slice
    pass_two_hours(client)
    stage(clients, "frozen", 1).__exit__(None, None, None)
    running = stage(clients, "runs", 2)
    try:
        begin(clients, "next", 9)
        assert staged(client) == {"frozen", "runs", "mine"}
        (count,) = client.query("SELECT count() FROM system.tables WHERE name LIKE 'job\\_runs%'").result_rows[0]
        assert count == len(TABLES) + 1
        pass_two_hours(client, "frozen")
        begin(clients, "next", 9)
        assert staged(client) == {"runs", "mine"}
        running.check(client)
    finally:
        running.__exit__(None, None, None)
    begin(clients, "runs", 2)
    assert staged(client) == {"mine"}


def pass_two_hours(client: Client, job: str = "%") -> None:
    client.command(
        "ALTER TABLE job_locks UPDATE expires_time = expires_time - 7200"
        f" WHERE job LIKE '{job}' AND toUnixTimestamp(expires_time) > 0",
        settings={"mutations_sync": 2},
    )
